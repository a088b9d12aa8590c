# amalgamate.awk -- C sources to one: each is appended, a header where it is included first, a .def wherever it is included.
#   awk -f tools/amalgamate.awk SOURCE... -- GENERATED...
#
# What is private to a file meets other files' names in one compilation. So each file's macros are undefined at its end, and of names that
# several files define (static functions and variables, tags, enumeration constants, KR_BUILTINs) each source's gets the file's name before it; headers' stay.
# A first pass over the tokens collects definitions at file scope, a second one writes the text with other names. A member's name is no such
# name: it stands after . or ->, or in a structure's braces. The public header stays an include.
function fail(message) {
    print "amalgamate: " message >"/dev/stderr"
    failed = 1
    exit 1
}

# ---- tokens: next_token() takes one off LINE; TOKEN is its text, KIND is space, comment, word, text, number or mark ----
function take(length_, kind) {
    TOKEN = substr(LINE, 1, length_)
    LINE = substr(LINE, length_ + 1)
    KIND = kind
}
function next_token(    i) {
    if (COMMENT) {
        i = index(LINE, "*/")
        COMMENT = i == 0
        take(i ? i + 1 : length(LINE), "comment")
    } else if (match(LINE, /^[ \t]+/))
        take(RLENGTH, "space")
    else if (match(LINE, /^[A-Za-z_][A-Za-z_0-9]*/))
        take(RLENGTH, "word")
    else if (match(LINE, /^"([^"\\]|\\.)*"/) || match(LINE, /^'([^'\\]|\\.)*'/))
        take(RLENGTH, "text")
    else if (match(LINE, /^[0-9]([A-Za-z_0-9.]|[eEpP][-+])*/))
        take(RLENGTH, "number")
    else if (LINE ~ /^\/\//)
        take(length(LINE), "comment")
    else if (LINE ~ /^\/\*/) {
        i = index(substr(LINE, 3), "*/")
        COMMENT = i == 0
        take(i ? i + 3 : length(LINE), "comment")
    } else if (LINE ~ /^->/)
        take(2, "mark")
    else
        take(1, "mark")
}

# ---- where a token stands: BRACES holds what each open brace is, "s" structure, "e" enumeration, "b" other ----
function begin_file() {
    BRACES = ""
    PARENS = BRACKETS = COMMENT = DIRECTIVE = STATIC = TYPEDEF = VALUE = 0
    AGGREGATE = BUILTIN = LAST = LAST2 = ""
}
# After the token T, a word or mark.
function step(t) {
    if (t == "{") {
        BRACES = BRACES (AGGREGATE == "" ? "b" : AGGREGATE == "enum" ? "e" : "s")
        AGGREGATE = ""
    } else if (t == "}") {
        if (BRACES == "b" && !VALUE)
            STATIC = TYPEDEF = 0
        BRACES = substr(BRACES, 1, length(BRACES) - 1)
    } else if (t == "struct" || t == "union" || t == "enum")
        AGGREGATE = t
    else if (AGGREGATE != "" && (t !~ /^[A-Za-z_]/ || LAST != AGGREGATE))
        AGGREGATE = ""
    if (t == "(") PARENS++
    else if (t == ")") PARENS--
    else if (t == "[") BRACKETS++
    else if (t == "]") BRACKETS--
    else if (t == "static") STATIC = 1
    else if (t == "typedef") TYPEDEF = 1
    else if (BRACES == "" && PARENS == 0 && t == "=") VALUE = 1
    else if (BRACES == "" && PARENS == 0 && t == ",") VALUE = 0
    else if (BRACES == "" && t == ";") STATIC = TYPEDEF = VALUE = 0
    if (LAST2 == "KR_BUILTIN" && LAST == "(")
        BUILTIN = t
    LAST2 = LAST
    LAST = t
}

# ---- the first pass ----
function define(name, space) {
    if (!((FILE, space, name) in DEFINED)) {
        DEFINED[FILE, space, name] = 1
        COUNT[space, name]++
    }
}
# The token W, a word, is followed by T; LAST and LAST2 stand before W.
function collect(w, t) {
    if ((LAST == "struct" || LAST == "union" || LAST == "enum") && t == "{" && BRACES !~ /b/)
        define(w, "tag")
    else if (BRACES == "e" && (LAST == "{" || LAST == ","))
        define(w, "name")
    else if (BRACES == "" && LAST2 == "KR_BUILTIN" && LAST == "(")
        define(w, "builtin")
    else if (BRACES == "" && (STATIC || TYPEDEF) && !VALUE && !BRACKETS && w !~ /^__/) {
        if (PARENS == 0 && t ~ /^[(\[=;,]$/ && LAST !~ /^(static|typedef|struct|union|enum)$/)
            define(w, "name")
        else if (PARENS == 1 && LAST == "*" && LAST2 == "(")
            define(w, "name")
    }
}
function first_pass(    word) {
    begin_file()
    word = ""
    while ((getline LINE <FILE) > 0) {
        if (!COMMENT && !DIRECTIVE && LINE ~ /^[ \t]*#/)
            DIRECTIVE = 1
        if (DIRECTIVE) {
            DIRECTIVE = LINE ~ /\\$/
            if (LINE ~ /include[ \t]*"[^"]*\.h"/) {
                split(LINE, part, "\"")
                HEADERS[part[2]]
            }
            continue
        }
        while (LINE != "") {
            next_token()
            if (KIND == "space" || KIND == "comment")
                continue
            if (word != "") {
                collect(word, TOKEN)
                step(word)
            }
            word = KIND == "word" ? TOKEN : ""
            if (word == "")
                step(TOKEN)
        }
    }
    close(FILE)
}

# ---- the second pass ----
function several(space, name) { return ((FILE, space, name) in DEFINED) && COUNT[space, name] > 1 }
function renamed(word,    stem) {
    stem = word
    if (LAST2 == "KR_BUILTIN" && LAST == "(")
        return several("builtin", word) ? PREFIX word : word
    if (sub(/_(def|fn)$/, "", stem) && several("builtin", stem))
        return PREFIX word
    if (LAST == "struct" || LAST == "union" || LAST == "enum")
        return several("tag", word) ? PREFIX word : word
    if (LAST == "." || LAST == "->" || (BRACES ~ /s$/ && !BRACKETS))
        return word
    return several("name", word) ? PREFIX word : word
}
function write_line(    text) {
    text = ""
    while (LINE != "") {
        next_token()
        text = text (KIND == "word" ? renamed(TOKEN) : TOKEN)
        if (KIND != "space" && KIND != "comment" && !DIRECTIVE)
            step(TOKEN)
        else if (DIRECTIVE && KIND != "space") {
            LAST2 = LAST
            LAST = TOKEN
        }
    }
    print text
}
# A header or a .def as it is, with what it includes.
function write_header(path,    line, n) {
    if (path ~ /\/karakuri\.h$/) {
        if (!WRITTEN[path]++)
            print "#include \"karakuri.h\""
        return
    }
    if (path ~ /\.h$/ && WRITTEN[path]++)
        return
    print "/* ---- " path " ---- */"
    n = 0
    while ((getline line <path) > 0) {
        n++
        if (!write_include(line))
            print line
    }
    if (n == 0)
        fail(path ": not there")
    close(path)
}
# Whether LINE was an include. System headers keep their own visibility.
function write_include(line,    path) {
    if (line ~ /^[ \t]*#[ \t]*include[ \t]*</) {
        if (match(line, /<.*>/) && line !~ /atomic_ops/ && SYSTEM[substr(line, RSTART, RLENGTH)]++)
            return 1
        print "#pragma GCC visibility push(default)\n" line "\n#pragma GCC visibility pop"
        return 1
    }
    if (line !~ /^[ \t]*#[ \t]*include[ \t]*"/)
        return 0
    path = line
    sub(/^[^"]*"/, "", path)
    sub(/".*/, "", path)
    write_header(path)
    return 1
}
function second_pass(    macros, name, conditional, last, last2) {
    begin_file()
    PREFIX = FILE
    sub(/.*\//, "", PREFIX)
    sub(/\.c$/, "__", PREFIX) # two: class.c has a definition, api_define.c a class_definition
    gsub(/[^A-Za-z_0-9]/, "_", PREFIX)
    macros = ""
    print "\n/* ==== " FILE " ==== */"
    while ((getline LINE <FILE) > 0) {
        if (COMMENT || DIRECTIVE || LINE !~ /^[ \t]*#/) {
            last = LINE
            write_line()
            if (DIRECTIVE && last !~ /\\$/)
                end_directive()
            continue
        }
        if (LINE ~ /^#define _GNU_SOURCE/)
            continue
        if (write_include(LINE)) {
            if (GENERATED == 1)
                set_options()
            continue
        }
        if (match(LINE, /^[ \t]*#[ \t]*define[ \t]+/)) {
            name = substr(LINE, RSTART + RLENGTH)
            sub(/[^A-Za-z_0-9].*/, "", name)
            macros = macros "#undef " name "\n"
        }
        DIRECTIVE = 1
        SAVED_LAST = LAST
        SAVED_LAST2 = LAST2
        last = LINE
        write_line()
        if (last !~ /\\$/)
            end_directive()
    }
    close(FILE)
    printf "%s", macros
}
function end_directive() {
    DIRECTIVE = 0
    LAST = SAVED_LAST
    LAST2 = SAVED_LAST2
}

# ---- generated C ----
# It is not written for readers: no warnings. KR_BYTECODE_CORE leaves it out.
function begin_generated(    names, n, i) {
    n = split("unused-label unused-variable unused-but-set-variable unused-function unused-parameter", names, " ")
    print "\n/* ---- the core library's functions, as C ---- */"
    print "#ifdef KR_BYTECODE_CORE\nconst struct kri_native_module *const kri_core_native = NULL;\n#else"
    for (i = 1; i <= n; i++)
        print "#pragma GCC diagnostic ignored \"-W" names[i] "\""
    GENERATED = 1
}
# After the first include: what was declared before keeps its own options.
function set_options() {
    print "#if defined(__OPTIMIZE__) && !defined(__clang__)\n#pragma GCC optimize(\"Os\", \"no-strict-aliasing\") /* as the library is made: -O2 is larger and slower to compile */\n#endif"
    GENERATED = 2
}

BEGIN {
    for (i = 1; i < ARGC; i++)
        if (ARGV[i] != "--") {
            FILE = ARGV[i]
            first_pass()
        }
    do {
        more = 0
        for (FILE in HEADERS)
            if (!SEEN[FILE]++) {
                first_pass()
                more = 1
                break
            }
    } while (more)
    for (i = 1; i < ARGC; i++)
        if (ARGV[i] == "--")
            begin_generated()
        else {
            FILE = ARGV[i]
            second_pass()
        }
    if (GENERATED)
        print "#endif"
}
