# man3.awk -- karakuri.h as a manual page: each comment with the declarations below it.
#   awk -f tools/man3.awk -v version=0.2.0 lisp/karakuri.h >libkarakuri.3
function escape(s) {
    gsub(/\\/, "\\e", s)
    gsub(/-/, "\\-", s)
    return s ~ /^[.']/ ? "\\\\&" s : s
}
# What was gathered: the declarations, then their comment.
function flush() {
    if (declarations != "")
        printf ".PP\n.nf\n.ft B\n%s.ft R\n.fi\n", declarations
    if (comment != "")
        printf declarations == "" ? ".PP\n%s" : ".RS 4\n%s.RE\n", comment
    declarations = comment = ""
    listed = 0
}
function add_comment(line) {
    sub(/^\/?\*+ ?/, "", line)
    sub(/^ \* ?/, "", line)
    sub(/[ \t]*\*\/$/, "", line)
    if (line ~ /^----.*----$/) {
        gsub(/^-+ | -+$/, "", line)
        printf ".SH %s\n", toupper(line)
    } else if (line == "")
        comment = comment ".PP\n"
    else {
        if (line ~ /^  / || listed) # a list's items are indented
            comment = comment ".br\n"
        listed = line ~ /^  /
        comment = comment escape(line) "\n"
    }
}
BEGIN {
    printf ".TH LIBKARAKURI 3 \"\" \"Karakuri %s\" \"Library Functions Manual\"\n", version
    print ".SH NAME\nlibkarakuri, karakuri.h \\- Karakuri, a multithreaded Lisp for robots, in a C or C++ program"
    print ".SH SYNOPSIS\n.nf\n.B #include <karakuri.h>\n.PP"
    print ".RI \"cc \" host.c \" $(pkg\\-config \\-\\-cflags \\-\\-libs karakuri)\"\n.fi\n.SH DESCRIPTION"
}
inside {
    inside = !/\*\/$/
    add_comment($0)
    next
}
/^\/\*/ {
    flush()
    inside = !/\*\/$/
    add_comment($0)
    next
}
/^#(if|endif|ifndef|ifdef|pragma|include)/ || /^#define (KARAKURI_H|KR_VALUE_DEFINED)/ || /^__attribute__/ || /^extern "C"/ { next }
/^}$/ { next }
/^[ \t]*$/ { flush(); next }
{ declarations = declarations escape($0) "\n" }
END {
    flush()
    print ".SH SEE ALSO\n.BR karakuri (1),\n.BR pkg\\-config (1)\n.PP\nThe guide with complete programs: embedding.md among Karakuri's documents."
}
