/* builtin_string.c -- characters (small integers) and strings (vectors of bytes; UTF-8 text passes through unchanged).
 *
 * Where a string is wanted for reading, a symbol stands for its name. Case is that of ASCII. */
#include "lisp/sequence.h"

/* ---- characters ---- */

static bool upper(intptr_t c) { return c >= 'A' && c <= 'Z'; }
static bool lower(intptr_t c) { return c >= 'a' && c <= 'z'; }
static bool digit(intptr_t c) { return c >= '0' && c <= '9'; }
static bool alphanumeric(intptr_t c) { return upper(c) || lower(c) || digit(c); }
static intptr_t to_upper(intptr_t c) { return lower(c) ? c - 32 : c; }
static intptr_t to_lower(intptr_t c) { return upper(c) ? c + 32 : c; }

KR_BUILTIN(char_upcase, "char-upcase", "(ch)", "Return the upper-case letter for the character CH, or CH if it has none.")
{
    return kri_fixnum(to_upper(kri_arg_fixnum(w, argv, 0)));
}

KR_BUILTIN(char_downcase, "char-downcase", "(ch)", "Return the lower-case letter for the character CH, or CH if it has none.")
{
    return kri_fixnum(to_lower(kri_arg_fixnum(w, argv, 0)));
}

KR_BUILTIN(alpha_char_p, "alpha-char-p", "(ch)", "Return T if CH is an ASCII letter.")
{
    intptr_t c = kri_arg_fixnum(w, argv, 0);
    return kri_bool(w, upper(c) || lower(c));
}

KR_BUILTIN(digit_char_p, "digit-char-p", "(ch)", "Return T if CH is one of the digits 0 to 9.")
{
    return kri_bool(w, digit(kri_arg_fixnum(w, argv, 0)));
}

KR_BUILTIN(alphanumericp, "alphanumericp", "(ch)", "Return T if CH is an ASCII letter or a digit.")
{
    return kri_bool(w, alphanumeric(kri_arg_fixnum(w, argv, 0)));
}

KR_BUILTIN(upper_case_p, "upper-case-p", "(ch)", "Return T if CH is an upper-case ASCII letter.")
{
    return kri_bool(w, upper(kri_arg_fixnum(w, argv, 0)));
}

KR_BUILTIN(lower_case_p, "lower-case-p", "(ch)", "Return T if CH is a lower-case ASCII letter.")
{
    return kri_bool(w, lower(kri_arg_fixnum(w, argv, 0)));
}

KR_BUILTIN(both_case_p, "both-case-p", "(ch)", "Return T if CH is an ASCII letter: it has the other case.")
{
    intptr_t c = kri_arg_fixnum(w, argv, 0);
    return kri_bool(w, upper(c) || lower(c));
}

KR_BUILTIN(graphic_char_p, "graphic-char-p", "(ch)", "Return T if CH is a printing ASCII character or the blank.")
{
    intptr_t c = kri_arg_fixnum(w, argv, 0);
    return kri_bool(w, c >= ' ' && c < 127);
}

KR_BUILTIN(char_code, "char-code", "(ch)", "Return CH: characters are integers.")
{
    return kri_fixnum(kri_arg_natural(w, argv, 0));
}

KR_BUILTIN(code_char, "code-char", "(code)", "Return CODE: characters are integers.")
{
    return kri_fixnum(kri_arg_natural(w, argv, 0));
}

KR_BUILTIN(digit_char, "digit-char", "(weight &optional (radix 10))", "Return the character of the digit WEIGHT in base RADIX, NIL if there is none.")
{
    intptr_t n = kri_arg_natural(w, argv, 0), base = argc > 1 ? kri_arg_natural(w, argv, 1) : 10;
    if (n >= base || n >= 36)
        return KRI_NIL;
    return kri_fixnum(n < 10 ? '0' + n : 'A' + n - 10);
}

/* ORDER(a, b) between each character and the next; CASE maps them first. */
#define CHAR_COMPARISON(id, name, map, order, doc)                                                                               \
    KR_BUILTIN(id, name, "(char &rest more-chars)", doc)                                                                         \
    {                                                                                                                            \
        bool good = true;                                                                                                        \
        for (int i = 0; i < argc; i++) {                                                                                         \
            intptr_t b = map(kri_arg_fixnum(w, argv, i)), a = i ? map(kri_fixnum_value(argv[i - 1])) : 0;                        \
            good = good && (i == 0 || a order b);                                                                                \
        }                                                                                                                        \
        return kri_bool(w, good);                                                                                                \
    }
static intptr_t as_is(intptr_t c) { return c; }
CHAR_COMPARISON(char_eq, "char=", as_is, ==, "Return T if all characters are the same.")
CHAR_COMPARISON(char_lt, "char<", as_is, <, "Return T if each character comes before the next.")
CHAR_COMPARISON(char_gt, "char>", as_is, >, "Return T if each character comes behind the next.")
CHAR_COMPARISON(char_le, "char<=", as_is, <=, "Return T if no character comes behind the next.")
CHAR_COMPARISON(char_ge, "char>=", as_is, >=, "Return T if no character comes before the next.")
CHAR_COMPARISON(char_equal, "char-equal", to_upper, ==, "Return T if all characters are the same but for case.")
CHAR_COMPARISON(char_lessp, "char-lessp", to_upper, <, "Return T if, but for case, each character comes before the next.")
CHAR_COMPARISON(char_greaterp, "char-greaterp", to_upper, >, "Return T if, but for case, each character comes behind the next.")

KR_BUILTIN(char_ne, "char/=", "(char &rest more-chars)", "Return T if no two of the characters are the same.")
{
    bool good = true;
    for (int i = 0; i < argc; i++) {
        kri_arg_fixnum(w, argv, i);
        for (int j = 0; j < i; j++)
            good = good && !kri_eq(argv[i], argv[j]);
    }
    return kri_bool(w, good);
}

/* ---- strings as arguments ---- */

static bool has_bytes(enum kri_element e)
{
    return e == KRI_ELEMENT_CHAR || e == KRI_ELEMENT_BYTE || e == KRI_ELEMENT_FOREIGN;
}

bool kri_string_designator(struct kr_vm *vm, kr_value v, const unsigned char **bytes, size_t *length)
{
    if (kri_is_symbol(v))
        v = kri_slot(&kri_symbol_of(vm, v)->pname);
    if (!has_bytes(kri_element(vm, v)))
        return false;
    *bytes = kri_vector_bytes(vm, v);
    *length = kri_length(v);
    return true;
}

struct text {
    const unsigned char *at;
    size_t n;
};

static struct text text_arg(struct kri_worker *w, const kr_value *argv, int i)
{
    struct text t;
    if (!kri_string_designator(w->vm, argv[i], &t.at, &t.n))
        kri_argument_error(w, i, argv[i], KRI_E_NO_STRING);
    return t;
}

/* The part of T between two values; NIL is none. Unlike other sequences' bounds these are cut to the string. */
static struct text cut(struct kri_worker *w, struct text t, kr_value start, kr_value end)
{
    size_t bound[2] = {0, t.n};
    const kr_value given[2] = {start, end};
    for (int i = 0; i < 2; i++) {
        if (kri_is_nil(given[i]))
            continue;
        if (!kri_is_fixnum(given[i]))
            kri_error(w, KRI_E_NO_INTEGER, given[i], "as bound of a string: %V", given[i]);
        intptr_t n = kri_fixnum_value(given[i]);
        if (n < 0)
            kri_error(w, KRI_E_START_END, given[i], "%ld", (long)n);
        bound[i] = (size_t)n < t.n ? (size_t)n : t.n;
    }
    if (bound[0] > bound[1])
        bound[0] = bound[1];
    return (struct text){t.at + bound[0], bound[1] - bound[0]};
}

/* Arguments 0 and 1 with :start1 :end1 :start2 :end2 behind. */
static void two_texts(struct kri_worker *w, int argc, const kr_value *argv, struct text *a, struct text *b)
{
    *a = text_arg(w, argv, 0);
    *b = text_arg(w, argv, 1);
    if (argc == 2)
        return;
    const struct kri_symbols *s = &w->vm->sym;
    const kr_value allowed[] = {s->k_start1, s->k_end1, s->k_start2, s->k_end2};
    kri_check_keys(w, argc, argv, 2, allowed, 4);
    *a = cut(w, *a, kri_arg_key(argc, argv, 2, s->k_start1, KRI_NIL), kri_arg_key(argc, argv, 2, s->k_end1, KRI_NIL));
    *b = cut(w, *b, kri_arg_key(argc, argv, 2, s->k_start2, KRI_NIL), kri_arg_key(argc, argv, 2, s->k_end2, KRI_NIL));
}

static int compare(struct text a, struct text b)
{
    size_t n = a.n < b.n ? a.n : b.n;
    int c = n ? memcmp(a.at, b.at, n) : 0;
    return c ? c : (a.n > b.n) - (a.n < b.n);
}

static int compare_folded(struct text a, struct text b)
{
    for (size_t i = 0; i < a.n && i < b.n; i++) {
        intptr_t d = to_upper(a.at[i]) - to_upper(b.at[i]);
        if (d)
            return (int)d;
    }
    return (a.n > b.n) - (a.n < b.n);
}

/* ---- comparison ---- */

#define STRING_COMPARISON(id, name, how, order, doc)                                                                             \
    KR_BUILTIN(id, name, "(string1 string2 &key (start1 0) end1 (start2 0) end2)", doc)                                          \
    {                                                                                                                            \
        struct text a, b;                                                                                                        \
        two_texts(w, argc, argv, &a, &b);                                                                                        \
        return kri_bool(w, how(a, b) order 0);                                                                                   \
    }
STRING_COMPARISON(string_lt, "string<", compare, <, "Return T if STRING1 comes before STRING2 by the values of their bytes.")
STRING_COMPARISON(string_gt, "string>", compare, >, "Return T if STRING1 comes behind STRING2 by the values of their bytes.")
STRING_COMPARISON(string_le, "string<=", compare, <=, "Return T if STRING1 does not come behind STRING2.")
STRING_COMPARISON(string_ge, "string>=", compare, >=, "Return T if STRING1 does not come before STRING2.")
STRING_COMPARISON(string_ne, "string/=", compare, !=, "Return T if the strings differ.")
STRING_COMPARISON(string_equal, "string-equal", compare_folded, ==, "Return T if the strings are the same but for case.")
STRING_COMPARISON(string_lessp, "string-lessp", compare_folded, <, "Return T if, but for case, STRING1 comes before STRING2.")
STRING_COMPARISON(string_greaterp, "string-greaterp", compare_folded, >, "Return T if, but for case, STRING1 comes behind STRING2.")
STRING_COMPARISON(string_not_greaterp, "string-not-greaterp", compare_folded, <=, "Return T if, but for case, STRING1 does not come behind STRING2.")
STRING_COMPARISON(string_not_lessp, "string-not-lessp", compare_folded, >=, "Return T if, but for case, STRING1 does not come before STRING2.")
STRING_COMPARISON(string_not_equal, "string-not-equal", compare_folded, !=, "Return T if the strings differ in more than case.")

KR_BUILTIN(string_eq, "string=", "(string1 string2 &key (start1 0) end1 (start2 0) end2)",
           "Return T if the parts of the strings (or symbols' names) from START up to END are the same.")
{
    struct text a, b;
    two_texts(w, argc, argv, &a, &b);
    return kri_bool(w, a.n == b.n && (a.n == 0 || memcmp(a.at, b.at, a.n) == 0));
}

kri_builtin_fn kri_builtin_string_equal(void) { return string_eq_fn; }

static void positional(struct kri_worker *w, const kr_value *argv, struct text *a, struct text *b)
{
    *a = cut(w, text_arg(w, argv, 0), argv[2], argv[3]);
    *b = cut(w, text_arg(w, argv, 1), argv[4], argv[5]);
}

KR_BUILTIN(stringeq, "stringeq", "(string1 string2 start1 end1 start2 end2)", "STRING= with the bounds by position.")
{
    struct text a, b;
    positional(w, argv, &a, &b);
    return kri_bool(w, compare(a, b) == 0);
}

KR_BUILTIN(stringequal, "stringequal", "(string1 string2 start1 end1 start2 end2)", "STRING-EQUAL with the bounds by position.")
{
    struct text a, b;
    positional(w, argv, &a, &b);
    return kri_bool(w, compare_folded(a, b) == 0);
}

KR_BUILTIN(substringp, "substringp", "(sub string)", "Return T if SUB occurs in STRING; case makes no difference.")
{
    struct text a = text_arg(w, argv, 0), b = text_arg(w, argv, 1);
    size_t ticks = 0;
    for (size_t i = 0; i + a.n <= b.n; i++, kri_tick(w, &ticks))
        if (compare_folded(a, (struct text){b.at + i, a.n}) == 0)
            return w->vm->sym.t;
    return KRI_NIL;
}

/* ---- making strings ---- */

KR_BUILTIN(stringp, "stringp", "(object)", "Return T if OBJECT is a string.")
{
    return kri_bool(w, kri_is_string(w->vm, argv[0]));
}

KR_BUILTIN(null_string_p, "null-string-p", "(object)", "Return T if OBJECT is a string without characters.")
{
    return kri_bool(w, kri_is_string(w->vm, argv[0]) && kri_length(argv[0]) == 0);
}

KR_BUILTIN(make_string, "make-string", "(size &key initial-element)", "Return a string of SIZE bytes: INITIAL-ELEMENT (0).")
{
    intptr_t n = kri_arg_fixnum(w, argv, 0);
    kr_value key = w->vm->sym.k_initial_element;
    kri_check_keys(w, argc, argv, 1, &key, 1);
    kr_value c = kri_arg_key(argc, argv, 1, key, kri_fixnum(0));
    if (!kri_is_fixnum(c))
        kri_error(w, KRI_E_NO_INTEGER, c, "as a character: %V", c);
    if (n < 0)
        kri_argument_error(w, 0, argv[0], KRI_E_ARRAY_SIZE);
    kr_value s = kri_make_string(w, (size_t)n);
    if (n > 0)
        memset(kri_string_of(s)->byte, (int)kri_fixnum_value(c), (size_t)n);
    return s;
}

/* A fresh string with the bytes of T, which lie in cell KEEP (kept alive by being an argument). */
static kr_value copy(struct kri_worker *w, struct text t)
{
    kr_value s = kri_make_string(w, t.n);
    if (t.n)
        memcpy(kri_string_of(s)->byte, t.at, t.n);
    return s;
}

KR_BUILTIN(string, "string", "(object)", "Return OBJECT as a string: itself if it is one, a symbol's name, or the printed text of a number.")
{
    if (has_bytes(kri_element(w->vm, argv[0])))
        return argv[0];
    if (kri_is_symbol(argv[0]))
        return copy(w, text_arg(w, argv, 0));
    if (kri_is_number(argv[0]))
        return kri_print_to_string(w, argv[0], false);
    kri_error(w, KRI_E_USER, argv[0], "cannot coerce to string %V", argv[0]);
}

KR_BUILTIN(true_string, "true-string", "(object)", "Return OBJECT if it is a string, a symbol's name, or the text of a number.")
{
    return string_fn(w, argc, argv);
}

KR_BUILTIN(symbol_string, "symbol-string", "(symbol)", "Return the name of SYMBOL as a fresh string.")
{
    kri_arg_symbol(w, argv, 0);
    return copy(w, text_arg(w, argv, 0));
}

KR_BUILTIN(digits_string, "digits-string", "(n digits &optional (base 10))",
           "Return the last DIGITS digits of integer N in BASE, filled up with zeros in front.")
{
    intptr_t digits = kri_arg_natural(w, argv, 1), base = argc > 2 ? kri_arg_natural(w, argv, 2) : 10;
    if (!kri_is_integer(argv[0]))
        kri_argument_error(w, 0, argv[0], KRI_E_NO_INTEGER);
    if (base < 2 || base > 36)
        kri_argument_error(w, 2, argv[2], KRI_E_RANGE);
    kr_value all = kri_integer_to_string(w, argv[0], (int)base), s = kri_make_string(w, (size_t)digits);
    size_t n = kri_length(all), want = (size_t)digits;
    const unsigned char *from = kri_string_of(all)->byte;
    unsigned char *to = kri_string_of(s)->byte;
    if (n >= want) {
        memcpy(to, from + (n - want), want);
    } else {
        memset(to, '0', want - n);
        memcpy(to + (want - n), from, n);
    }
    return s;
}

/* ---- elements ---- */

static unsigned char *char_at(struct kri_worker *w, const kr_value *argv)
{
    if (!has_bytes(kri_element(w->vm, argv[0])))
        kri_argument_error(w, 0, argv[0], KRI_E_NO_STRING);
    intptr_t i = kri_arg_fixnum(w, argv, 1);
    if (i < 0 || (size_t)i >= kri_length(argv[0]))
        kri_index_error(w, 1, argv[1], KRI_E_ARRAY_INDEX, kri_length(argv[0]));
    return kri_vector_bytes(w->vm, argv[0]) + i;
}

KR_BUILTIN(char_, "char", "(string index)", "Return the byte of STRING at INDEX.")
{
    return kri_fixnum(*char_at(w, argv));
}

KR_BUILTIN(schar, "schar", "(string index)", "Return the byte of STRING at INDEX.")
{
    return kri_fixnum(*char_at(w, argv));
}

KR_BUILTIN(setchar, "setchar", "(string index char)", "Make CHAR (its lowest eight bits) the byte of STRING at INDEX; return CHAR.")
{
    unsigned char *at = char_at(w, argv);
    *at = (unsigned char)kri_arg_fixnum(w, argv, 2);
    return argv[2];
}

/* ---- case ---- */

enum how { UP, DOWN, CAPITALIZE };

/* Change case of the bytes of string S between :start and :end of argv[1..argc). */
static void change_case(struct kri_worker *w, kr_value s, int argc, const kr_value *argv, enum how how)
{
    const struct kri_symbols *sym = &w->vm->sym;
    struct text t = {kri_vector_bytes(w->vm, s), kri_length(s)};
    if (argc > 1) {
        const kr_value allowed[] = {sym->k_start, sym->k_end};
        kri_check_keys(w, argc, argv, 1, allowed, 2);
        t = cut(w, t, kri_arg_key(argc, argv, 1, sym->k_start, KRI_NIL), kri_arg_key(argc, argv, 1, sym->k_end, KRI_NIL));
    }
    unsigned char *at = (unsigned char *)t.at; /* inside S, which is ours to change */
    bool inside = false;
    for (size_t i = 0; i < t.n; i++) {
        bool up = how == UP || (how == CAPITALIZE && !inside);
        inside = alphanumeric(at[i]);
        at[i] = (unsigned char)(up ? to_upper(at[i]) : to_lower(at[i]));
    }
}

static kr_value changed_copy(struct kri_worker *w, int argc, const kr_value *argv, enum how how)
{
    kr_value s = copy(w, text_arg(w, argv, 0));
    change_case(w, s, argc, argv, how);
    return s;
}

static kr_value changed(struct kri_worker *w, int argc, const kr_value *argv, enum how how)
{
    if (!has_bytes(kri_element(w->vm, argv[0])))
        kri_argument_error(w, 0, argv[0], KRI_E_NO_STRING);
    change_case(w, argv[0], argc, argv, how);
    return argv[0];
}

KR_BUILTIN(string_upcase, "string-upcase", "(string &key (start 0) end)", "Return a copy of STRING with its letters from START up to END in upper case.")
{
    return changed_copy(w, argc, argv, UP);
}

KR_BUILTIN(string_downcase, "string-downcase", "(string &key (start 0) end)", "Return a copy of STRING with its letters from START up to END in lower case.")
{
    return changed_copy(w, argc, argv, DOWN);
}

KR_BUILTIN(string_capitalize, "string-capitalize", "(string &key (start 0) end)",
           "Return a copy of STRING in which each word begins with an upper-case letter and goes on in lower case.")
{
    return changed_copy(w, argc, argv, CAPITALIZE);
}

KR_BUILTIN(nstring_upcase, "nstring-upcase", "(string &key (start 0) end)", "Put the letters of STRING itself in upper case; return it.")
{
    return changed(w, argc, argv, UP);
}

KR_BUILTIN(nstring_downcase, "nstring-downcase", "(string &key (start 0) end)", "Put the letters of STRING itself in lower case; return it.")
{
    return changed(w, argc, argv, DOWN);
}

KR_BUILTIN(nstring_capitalize, "nstring-capitalize", "(string &key (start 0) end)", "Capitalize the words of STRING itself; return it.")
{
    return changed(w, argc, argv, CAPITALIZE);
}

/* ---- trimming ---- */

static kr_value trim(struct kri_worker *w, const kr_value *argv, bool left, bool right)
{
    bool bag[256] = {false};
    struct text t = text_arg(w, argv, 1), b;
    size_t ticks = 0;
    if (kri_is_cons(argv[0])) {
        for (kr_value l = argv[0]; kri_is_cons(l); l = kri_cdr(l), kri_tick(w, &ticks))
            if (kri_is_fixnum(kri_car(l)) && kri_fixnum_value(kri_car(l)) >= 0 && kri_fixnum_value(kri_car(l)) < 256)
                bag[kri_fixnum_value(kri_car(l))] = true;
    } else if (!kri_is_nil(argv[0])) {
        b = text_arg(w, argv, 0);
        for (size_t i = 0; i < b.n; i++)
            bag[b.at[i]] = true;
    }
    for (; left && t.n && bag[t.at[0]]; t.at++)
        t.n--;
    while (right && t.n && bag[t.at[t.n - 1]])
        t.n--;
    return copy(w, t);
}

KR_BUILTIN(string_trim, "string-trim", "(bag string)", "Return STRING without the characters of BAG (a string or list) at both its ends.")
{
    return trim(w, argv, true, true);
}

KR_BUILTIN(string_left_trim, "string-left-trim", "(bag string)", "Return STRING without the characters of BAG at its beginning.")
{
    return trim(w, argv, true, false);
}

KR_BUILTIN(string_right_trim, "string-right-trim", "(bag string)", "Return STRING without the characters of BAG at its end.")
{
    return trim(w, argv, false, true);
}

const struct kri_builtin *const kri_builtins_string[] = {
    &char_upcase_def, &char_downcase_def, &alpha_char_p_def, &digit_char_p_def, &alphanumericp_def, &upper_case_p_def,
    &lower_case_p_def, &both_case_p_def, &graphic_char_p_def, &char_code_def, &code_char_def, &digit_char_def, &char_eq_def,
    &char_lt_def, &char_gt_def, &char_le_def, &char_ge_def, &char_ne_def, &char_equal_def, &char_lessp_def, &char_greaterp_def,
    &string_lt_def, &string_gt_def, &string_le_def, &string_ge_def, &string_ne_def, &string_equal_def, &string_lessp_def,
    &string_greaterp_def, &string_not_greaterp_def, &string_not_lessp_def, &string_not_equal_def, &string_eq_def, &stringeq_def,
    &stringequal_def, &substringp_def, &stringp_def, &null_string_p_def, &make_string_def, &string_def, &true_string_def,
    &symbol_string_def, &digits_string_def, &char__def, &schar_def, &setchar_def, &string_upcase_def, &string_downcase_def,
    &string_capitalize_def, &nstring_upcase_def, &nstring_downcase_def, &nstring_capitalize_def, &string_trim_def,
    &string_left_trim_def, &string_right_trim_def, NULL,
};
