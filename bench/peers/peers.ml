(* peers.ml -- the small programs in OCaml, for its bytecode: PROGRAM REPS [LIVE DEPTH]. See peers.l. *)
let rec fib n = if n < 2 then n else fib (n - 1) + fib (n - 2)

let rec tak x y z = if y < x then tak (tak (x - 1) y z) (tak (y - 1) z x) (tak (z - 1) x y) else z

let rec safe row distance = function
  | [] -> true
  | p :: rest -> p <> row && p <> row + distance && p <> row - distance && safe row (distance + 1) rest

let rec queens n k placed =
  if k = n then 1
  else begin
    let s = ref 0 in
    for row = 0 to n - 1 do
      if safe row 1 placed then s := !s + queens n (k + 1) (row :: placed)
    done;
    !s
  end

type 'a cell = Nil | Cons of { mutable car : 'a; mutable cdr : 'a cell }

let numbers n =
  let l = ref Nil in
  for i = n - 1 downto 0 do l := Cons { car = i; cdr = !l } done;
  !l

let rec sum s = function Nil -> s | Cons c -> sum (s + c.car) c.cdr

let copy = function
  | Nil -> Nil
  | Cons c ->
    let head = Cons { car = c.car; cdr = Nil } in
    let rec next from last =
      match from, last with
      | Cons f, Cons l -> let n = Cons { car = f.car; cdr = Nil } in l.cdr <- n; next f.cdr n
      | _ -> () in
    next c.cdr head;
    head

let copies reps =
  let l = numbers 10000 and c = ref Nil in
  for _ = 1 to reps do c := copy l done;
  sum 0 !c

let rec replace from into =
  match from, into with
  | Cons f, Cons t -> t.car <- f.car; replace f.cdr t.cdr
  | _ -> ()

let replaces reps =
  let l = numbers 10000 and c = numbers 10000 in
  for _ = 1 to reps do replace l c done;
  sum 0 c

let products reps =
  let a = Array.init 100000 (fun i -> float_of_int (i mod 7)) and b = Array.init 100000 (fun i -> float_of_int (i mod 5)) in
  let s = ref 0.0 in
  for _ = 1 to reps do
    let t = ref 0.0 in
    for i = 0 to 99999 do t := !t +. a.(i) *. b.(i) done;
    s := !s +. !t
  done;
  int_of_float !s

class receiver = object val one = 1 method one = one end

let sends n =
  let r = new receiver and s = ref 0 in
  for _ = 1 to n do s := !s + r#one done;
  !s

type tree = Leaf | Node of tree * tree

let rec tree depth = if depth = 0 then Node (Leaf, Leaf) else let a = tree (depth - 1) in Node (a, tree (depth - 1))
let rec nodes = function Leaf -> 0 | Node (a, b) -> 1 + nodes a + nodes b

let trees reps live depth =
  let keep = tree live and finished = ref 0 in
  for _ = 1 to reps do if tree depth <> Leaf then incr finished done;
  !finished + nodes keep

let two_threads reps =
  let results = [| 0; 0 |] in
  let ts = List.map (fun k -> Thread.create (fun () -> results.(k) <- copies reps) ()) [0; 1] in
  List.iter Thread.join ts;
  results.(0) + results.(1)

let times reps f =
  let s = ref 0 in
  for _ = 1 to reps do s := !s + f () done;
  !s

let () =
  let program = Sys.argv.(1) and reps = int_of_string Sys.argv.(2) in
  let extra i default = if Array.length Sys.argv > i then int_of_string Sys.argv.(i) else default in
  let start = Unix.gettimeofday () in
  let s = match program with
    | "fib" -> times reps (fun () -> fib 30)
    | "tak" -> times reps (fun () -> tak 18 12 6)
    | "queens" -> times reps (fun () -> queens 8 0 [])
    | "copy" -> copies reps
    | "replace" -> replaces reps
    | "inner" -> products reps
    | "send" -> sends (reps * 1000000)
    | "trees" -> trees reps (extra 3 16) (extra 4 12)
    | "threads" -> two_threads reps
    | "nothing" -> exit 0
    | _ -> exit 1 in
  Printf.printf "%s %.0f %d\n" program ((Unix.gettimeofday () -. start) *. 1e9) s
