# flatten.awk -- a header with what it includes by "...", without comments: what the library carries for the C that it generates.
#   awk -f tools/flatten.awk HEADER         a .h once, where it is included first, a .def wherever it is included
function without_comments(line,    text) {
    text = ""
    while (line != "")
        if (inside) {
            if (!match(line, /\*\//))
                break
            line = substr(line, RSTART + 2)
            inside = 0
        } else if (match(line, /\/\*|\/\/|"([^"\\]|\\.)*"|'([^'\\]|\\.)*'/)) {
            text = text substr(line, 1, RSTART - 1)
            token = substr(line, RSTART, RLENGTH)
            line = substr(line, RSTART + RLENGTH)
            if (token == "//")
                break
            inside = token == "/*"
            text = text (inside ? " " : token)
        } else {
            text = text line
            line = ""
        }
    sub(/[ \t]+$/, "", text)
    return text
}
function write(path,    line, part) {
    if (path ~ /\.h$/ && written[path]++)
        return
    while ((found = (getline line <path)) > 0)
        if (!inside && line ~ /^[ \t]*#[ \t]*include[ \t]*"/) {
            split(line, part, "\"")
            write(part[2])
        } else if ((line = without_comments(line)) != "")
            print line
    if (found < 0) {
        print "flatten: " path ": not there" >"/dev/stderr"
        exit 1
    }
    close(path)
}
BEGIN { write(ARGV[1]) }
