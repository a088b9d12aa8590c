/* readtable.c -- readtables: the standard one, copies, and the functions that look into and change them. */
#include <limits.h>
#include "lisp/reader_private.h"

const struct kri_native_macro kri_natives[NATIVE_COUNT] = {
    {0, false, NULL},
#define NATIVE(e, c, dispatched, name, doc) {c, dispatched, name},
    NATIVES
#undef NATIVE
};

/* The current readtable, checked: its slots can be set from Lisp. */
struct kri_readtable *kri_readtable_of(struct kri_worker *w, kr_value v)
{
    struct kri_readtable *t = (struct kri_readtable *)kri_ptr(v);
    if (!kri_is_pointer(v) || !kri_derivedp(w->vm, v, w->vm->classes[KRI_CLASS_READTABLE].object) || !kri_is_string(w->vm, t->syntax) ||
        kri_length(t->syntax) < 256 || !kri_has_class(t->macro, KRI_CLASS_VECTOR) || kri_length(t->macro) < 256 ||
        !kri_has_class(t->dispatch, KRI_CLASS_VECTOR) || kri_length(t->dispatch) < 256)
        kri_error(w, KRI_E_TYPE_MISMATCH, v, "readtable expected");
    return t;
}

static void set_syntax(unsigned char *syntax, const char *characters, enum syntax s)
{
    for (; *characters; characters++)
        syntax[(unsigned char)*characters] = (unsigned char)s;
}

static kr_value standard_readtable(struct kri_worker *w)
{
    struct kri_readtable *t = (struct kri_readtable *)kri_make(w, KRI_CLASS_READTABLE, 0, 5);
    kr_value table = kri_value_of(t), syntax = kri_make_string(w, 256), macro, dispatch;
    unsigned char *s = kri_string_of(syntax)->byte;
    kri_store(w, &t->head, &t->syntax, syntax);
    macro = kri_make_vector(w, 256);
    kri_store(w, &t->head, &t->macro, macro);
    dispatch = kri_make_vector(w, 256);
    kri_store(w, &t->head, &t->dispatch, dispatch);
    kri_store(w, &t->head, &t->readcase, w->vm->sym.k_upcase);
    memset(s, ILLEGAL, 32);
    memset(s + 32, CONSTITUENT, 256 - 32);
    s[127] = ILLEGAL;
    set_syntax(s, " \t\n\v\f\r", WHITE);
    set_syntax(s, "()\"';`,[]", TERMINATING);
    set_syntax(s, "#%", NONTERMINATING);
    set_syntax(s, "\\", SINGLE_ESCAPE);
    set_syntax(s, "|", MULTIPLE_ESCAPE);
    for (int i = 1; i < NATIVE_COUNT; i++) {
        struct kri_vector *v = kri_vector_of(kri_natives[i].dispatched ? dispatch : macro);
        kri_store(w, &v->head, &v->at[kri_natives[i].c], kri_fixnum(i));
    }
    kri_store(w, kri_ptr(macro), &kri_vector_of(macro)->at['#'], dispatch);
    return table;
}

void kri_reader_init(struct kri_worker *w)
{
    kr_value constant = kri_intern(w, "*DEFAULT-READTABLE*", 19, w->vm->pkg_lisp);
    struct kri_symbol *s = (struct kri_symbol *)kri_ptr(constant);
    kri_export(w, constant, w->vm->pkg_lisp);
    kri_store(w, &s->head, &s->value, standard_readtable(w));
    kri_set_special(w, w->vm->sym.readtable, standard_readtable(w));
    kri_set_special(w, w->vm->sym.read_base, kri_fixnum(10));
    kri_set_special(w, w->vm->sym.reader_state, KRI_NIL);
}

static kr_value arg_readtable(struct kri_worker *w, int argc, kr_value *argv, int i)
{
    kr_value t = i < argc && !kri_is_nil(argv[i]) ? argv[i] : kri_special(w, w->vm->sym.readtable);
    kri_readtable_of(w, t);
    return t;
}

static int arg_character(struct kri_worker *w, kr_value *argv, int i)
{
    intptr_t c = kri_arg_fixnum(w, argv, i);
    if (c < 0 || c > 255)
        kri_argument_error(w, i, argv[i], KRI_E_CHAR_RANGE);
    return (int)c;
}

static kr_value copy_vector(struct kri_worker *w, kr_value v)
{
    kr_value copy = kri_make_vector(w, kri_length(v));
    kri_store_move(w, kri_ptr(copy), kri_vector_of(copy)->at, kri_vector_of(v)->at, kri_length(v));
    return copy;
}

KR_BUILTIN(copy_readtable, "copy-readtable", "(&optional from-readtable to-readtable)",
           "Copy FROM-READTABLE, by default the current one, into TO-READTABLE or a new readtable, and return that. "
           "With FROM-READTABLE nil the copy is of the standard readtable.")
{
    kr_value from = argc > 0 && kri_is_nil(argv[0]) ? standard_readtable(w) : arg_readtable(w, argc, argv, 0);
    kr_value to = argc > 1 && !kri_is_nil(argv[1]) ? argv[1] : standard_readtable(w);
    struct kri_readtable *f = kri_readtable_of(w, from), *t = kri_readtable_of(w, to);
    kr_value syntax = kri_string_n(w, (char *)kri_string_of(f->syntax)->byte, kri_length(f->syntax));
    kr_value macro = copy_vector(w, f->macro), dispatch = copy_vector(w, f->dispatch);
    for (size_t i = 0; i < 256; i++) { /* each dispatch character's own table; the one of # is also a slot */
        kr_value e = kri_vector_of(macro)->at[i];
        if (kri_eq(e, f->dispatch))
            kri_store(w, kri_ptr(macro), &kri_vector_of(macro)->at[i], dispatch);
        else if (kri_has_class(e, KRI_CLASS_VECTOR))
            kri_store(w, kri_ptr(macro), &kri_vector_of(macro)->at[i], copy_vector(w, e));
    }
    kri_store(w, &t->head, &t->syntax, syntax);
    kri_store(w, &t->head, &t->macro, macro);
    kri_store(w, &t->head, &t->dispatch, dispatch);
    kri_store(w, &t->head, &t->readcase, kri_slot(&f->readcase));
    return to;
}

KR_BUILTIN(readtablep, "readtablep", "(x)", "T if X is a readtable.")
{
    return kri_bool(w, kri_is_pointer(argv[0]) && kri_derivedp(w->vm, argv[0], w->vm->classes[KRI_CLASS_READTABLE].object));
}

KR_BUILTIN(reset_readtable, "sys:reset-readtable", "()", "Make a fresh standard readtable the current one, and return it.")
{
    kr_value t = standard_readtable(w);
    kri_set_special(w, w->vm->sym.readtable, t);
    return t;
}

/* A macro entry as Lisp sees it: the standard ones by their functions' names. */
static kr_value macro_value(struct kri_worker *w, kr_value m)
{
    if (!kri_is_fixnum(m))
        return m;
    const char *name = kri_natives[kri_fixnum_value(m)].name;
    const char *colon = strstr(name, "::");
    char upper[64];
    size_t n = 0;
    for (name = colon ? colon + 2 : name; name[n] && n < sizeof upper; n++)
        upper[n] = name[n] >= 'a' && name[n] <= 'z' ? (char)(name[n] - 32) : name[n];
    return kri_intern(w, upper, n, w->vm->pkg_lisp);
}

/* The reverse: the name of a standard macro's function becomes its number, so that reading stays in C. */
static kr_value macro_entry(struct kri_worker *w, kr_value fn)
{
    for (int i = 1; kri_is_pointer(fn) && kri_is_symbol(fn) && i < NATIVE_COUNT; i++)
        if (kri_eq(macro_value(w, kri_fixnum(i)), fn))
            return kri_fixnum(i);
    if (!kri_is_nil(fn) && !kri_has_class(fn, KRI_CLASS_SYMBOL)) /* what a symbol names may be defined later */
        kri_coerce_function(w, fn);
    return fn;
}

KR_BUILTIN(set_macro_character, "set-macro-character", "(char function &optional non-terminating readtable)",
           "Make CHAR a macro character: FUNCTION of (stream char) reads what begins with it. It ends a symbol before it "
           "unless NON-TERMINATING. READTABLE defaults to the current one. Returns t.")
{
    int c = arg_character(w, argv, 0);
    kr_value table = arg_readtable(w, argc, argv, 3), entry = macro_entry(w, argv[1]);
    struct kri_readtable *t = kri_readtable_of(w, table);
    bool weak = argc > 2 && !kri_is_nil(argv[2]);
    if (kri_eq(entry, kri_fixnum(NATIVE_SHARP)))
        entry = t->dispatch;
    kri_store(w, kri_ptr(t->macro), &kri_vector_of(t->macro)->at[c], entry);
    kri_string_of(t->syntax)->byte[c] = kri_is_nil(entry) ? CONSTITUENT : weak ? NONTERMINATING : TERMINATING;
    return w->vm->sym.t;
}

KR_BUILTIN(set_syntax_from_char, "set-syntax-from-char", "(char from-char &optional readtable from-readtable)",
           "Have CHAR read in READTABLE, by default the current one, as FROM-CHAR is in FROM-READTABLE, by default the standard one. "
           "Returns t.")
{
    int c = arg_character(w, argv, 0), from = arg_character(w, argv, 1);
    kr_value table = arg_readtable(w, argc, argv, 2);
    kr_value source = argc > 3 && !kri_is_nil(argv[3]) ? argv[3] : standard_readtable(w);
    struct kri_readtable *t = kri_readtable_of(w, table), *f = kri_readtable_of(w, source);
    kr_value entry = kri_slot(&kri_vector_of(f->macro)->at[from]);
    kri_store(w, kri_ptr(t->macro), &kri_vector_of(t->macro)->at[c], kri_has_class(entry, KRI_CLASS_VECTOR) ? copy_vector(w, entry) : entry);
    kri_string_of(t->syntax)->byte[c] = kri_string_of(f->syntax)->byte[from];
    return w->vm->sym.t;
}

KR_BUILTIN(get_macro_character, "get-macro-character", "(char &optional readtable)",
           "The function (or its name) that reads what begins with CHAR in READTABLE, or nil.")
{
    int c = arg_character(w, argv, 0);
    struct kri_readtable *t = kri_readtable_of(w, arg_readtable(w, argc, argv, 1));
    kr_value m = kri_slot(&kri_vector_of(t->macro)->at[c]);
    return kri_has_class(m, KRI_CLASS_VECTOR) ? macro_value(w, kri_fixnum(NATIVE_SHARP)) : macro_value(w, m);
}

KR_BUILTIN(make_dispatch_macro_character, "make-dispatch-macro-character", "(char &optional non-terminating readtable)",
           "Make CHAR a dispatch macro character with an empty table, like #. Returns t.")
{
    int c = arg_character(w, argv, 0);
    struct kri_readtable *t = kri_readtable_of(w, arg_readtable(w, argc, argv, 2));
    kr_value table = kri_make_vector(w, 256);
    kri_store(w, kri_ptr(t->macro), &kri_vector_of(t->macro)->at[c], table);
    kri_string_of(t->syntax)->byte[c] = argc > 1 && !kri_is_nil(argv[1]) ? NONTERMINATING : TERMINATING;
    return w->vm->sym.t;
}

static int upper_character(int c) { return c >= 'a' && c <= 'z' ? c - 32 : c; }

KR_BUILTIN(set_dispatch_macro_character, "set-dispatch-macro-character", "(dispchar char function &optional readtable)",
           "FUNCTION of (stream char n) reads what begins with DISPCHAR (such as #), an optional number n (0 if absent) and "
           "CHAR, in either case. A DISPCHAR without a table gets one. Returns t.")
{
    int d = arg_character(w, argv, 0), c = upper_character(arg_character(w, argv, 1));
    struct kri_readtable *t = kri_readtable_of(w, arg_readtable(w, argc, argv, 3));
    kr_value entry = macro_entry(w, argv[2]), table = kri_slot(&kri_vector_of(t->macro)->at[d]);
    if (!kri_has_class(table, KRI_CLASS_VECTOR)) {
        table = kri_make_vector(w, 256);
        kri_store(w, kri_ptr(t->macro), &kri_vector_of(t->macro)->at[d], table);
        kri_string_of(t->syntax)->byte[d] = NONTERMINATING;
    }
    kri_store(w, kri_ptr(table), &kri_vector_of(table)->at[c], entry);
    return w->vm->sym.t;
}

KR_BUILTIN(get_dispatch_macro_character, "get-dispatch-macro-character", "(dispchar char &optional readtable)",
           "The function (or its name) that reads what begins with DISPCHAR and CHAR in READTABLE, or nil.")
{
    int d = arg_character(w, argv, 0), c = upper_character(arg_character(w, argv, 1));
    struct kri_readtable *t = kri_readtable_of(w, arg_readtable(w, argc, argv, 2));
    kr_value table = kri_slot(&kri_vector_of(t->macro)->at[d]);
    return kri_has_class(table, KRI_CLASS_VECTOR) ? macro_value(w, kri_slot(&kri_vector_of(table)->at[c])) : KRI_NIL;
}

/* The standard macros as functions of (stream char n), for other characters and other readtables. */
static kr_value call_native(struct kri_worker *w, enum native n, int argc, kr_value *argv)
{
    struct reader r;
    int c = argc > 1 ? arg_character(w, argv, 1) : kri_natives[n].c;
    intptr_t number = argc > 2 && kri_is_fixnum(argv[2]) ? kri_fixnum_value(argv[2]) : 0;
    kri_reader_setup(&r, w, argv[0], -1);
    r.line = (unsigned)kri_stream_line(w, r.stream);
    if (setjmp(r.shallow))
        kri_reader_too_deep(&r);
    if (number < 0 || number > INT_MAX)
        kri_argument_error(w, 2, argv[2], KRI_E_RANGE);
    kr_value v = n == NATIVE_SHARP ? kri_reader_dispatch(&r, kri_readtable_of(w, r.readtable)->dispatch)
                                   : kri_reader_native(&r, n, c, number == 0 && n != NATIVE_LABEL && n != NATIVE_REFERENCE ? -1 : (int)number);
    if (kri_eq(v, NO_ITEM) || kri_eq(v, CLOSE))
        v = KRI_NIL;
    return kri_reader_finish(&r, kri_eq(v, DOT) ? kri_reader_dot_symbol(&r) : v);
}

#define NATIVE(e, c, dispatched, name, doc)                                                                     \
    KR_BUILTIN(native_##e, name, "(stream &optional char n)",                                                   \
               "Reader macro: read from STREAM, behind the macro character CHAR, " doc ".")                     \
    {                                                                                                           \
        return call_native(w, NATIVE_##e, argc, argv);                                                          \
    }
NATIVES
#undef NATIVE

const struct kri_builtin *const kri_builtins_reader[] = {
    &copy_readtable_def,
    &readtablep_def,
    &reset_readtable_def,
    &set_macro_character_def,
    &get_macro_character_def, &set_syntax_from_char_def,
    &make_dispatch_macro_character_def,
    &set_dispatch_macro_character_def,
    &get_dispatch_macro_character_def,
#define NATIVE(e, c, dispatched, name, doc) &native_##e##_def,
    NATIVES
#undef NATIVE
    NULL,
};
