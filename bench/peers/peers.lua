-- peers.lua -- the small programs in Lua 5.4 and LuaJIT: PROGRAM REPS [LIVE DEPTH]. See peers.l. A cons is a table of two.
local function fib(n)
  if n < 2 then return n end
  return fib(n - 1) + fib(n - 2)
end

local function tak(x, y, z)
  if y < x then return tak(tak(x - 1, y, z), tak(y - 1, z, x), tak(z - 1, x, y)) end
  return z
end

local function safe(row, distance, placed)
  if not placed then return true end
  local p = placed[1]
  if p == row or p == row + distance or p == row - distance then return false end
  return safe(row, distance + 1, placed[2])
end

local function queens(n, k, placed)
  if k == n then return 1 end
  local s = 0
  for row = 0, n - 1 do
    if safe(row, 1, placed) then s = s + queens(n, k + 1, {row, placed}) end
  end
  return s
end

local function numbers(n)
  local l = nil
  while n > 0 do n = n - 1; l = {n, l} end
  return l
end

local function sum(l)
  local s = 0
  while l do s = s + l[1]; l = l[2] end
  return s
end

local function copy(l)
  local head = {l[1], nil}
  local tail = head
  l = l[2]
  while l do
    local c = {l[1], nil}
    tail[2] = c
    tail = c
    l = l[2]
  end
  return head
end

local function copies(reps)
  local l, c = numbers(10000), nil
  for _ = 1, reps do c = copy(l) end
  return sum(c)
end

local function replaces(reps)
  local l, c = numbers(10000), numbers(10000)
  for _ = 1, reps do
    local from, to = l, c
    while from do to[1] = from[1]; from = from[2]; to = to[2] end
  end
  return sum(c)
end

local function products(reps)
  local a, b, s = {}, {}, 0.0
  for i = 1, 100000 do a[i] = ((i - 1) % 7) + 0.0; b[i] = ((i - 1) % 5) + 0.0 end
  for _ = 1, reps do
    local t = 0.0
    for i = 1, #a do t = t + a[i] * b[i] end
    s = s + t
  end
  return s
end

local Receiver = {}
Receiver.__index = Receiver
function Receiver:get() return self.one end

local function sends(n)
  local r, s = setmetatable({one = 1}, Receiver), 0
  for _ = 1, n do s = s + r:get() end
  return s
end

local function tree(depth)
  if depth == 0 then return {false, false} end
  return {tree(depth - 1), tree(depth - 1)}
end

local function nodes(t)
  if not t then return 0 end
  return 1 + nodes(t[1]) + nodes(t[2])
end

local function trees(reps, live, depth)
  local keep, done = tree(live), 0
  for _ = 1, reps do if tree(depth) then done = done + 1 end end
  return done + nodes(keep)
end

local function times(f, reps, ...)
  local s = 0
  for _ = 1, reps do s = s + f(...) end
  return s
end

local program, reps = arg[1], tonumber(arg[2])
local start, s = os.clock(), 0
if program == "fib" then s = times(fib, reps, 30)
elseif program == "tak" then s = times(tak, reps, 18, 12, 6)
elseif program == "queens" then s = times(queens, reps, 8, 0, nil)
elseif program == "copy" then s = copies(reps)
elseif program == "replace" then s = replaces(reps)
elseif program == "inner" then s = products(reps)
elseif program == "send" then s = sends(reps * 1000000)
elseif program == "trees" then s = trees(reps, tonumber(arg[3] or 16), tonumber(arg[4] or 12))
else os.exit(1) end
print(string.format("%s %.0f %.0f", program, (os.clock() - start) * 1e9, s))
