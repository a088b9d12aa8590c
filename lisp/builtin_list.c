/* builtin_list.c -- conses and lists: what does not call back into Lisp.
 *
 * Functions with :test and :key (member, assoc) handle the plain cases here and go on as a Lisp function of
 * lib/core/sequence.l, by a tail call, when a caller's function has to be called: so no C frame ever waits for Lisp.
 * Lists may be circular or changed by another thread meanwhile: no loop trusts a length, all loops poll. */
#include "lisp/direct.h"
#include "lisp/sequence.h"

/* ---- equality ---- */

KR_BUILTIN(eq, "eq", "(obj1 obj2)", "Return T if OBJ1 and OBJ2 are the same object. Small integers and common floats are.")
{
    return kri_bool(w, kri_eq(argv[0], argv[1]));
}

KR_BUILTIN(eql, "eql", "(obj1 obj2)", "Return T if OBJ1 and OBJ2 are the same object, or equal numbers of the same type.")
{
    return kri_bool(w, kri_same(w, argv[0], argv[1], KRI_TEST_EQL));
}

KR_BUILTIN(equal, "equal", "(obj1 obj2)",
           "Return T if OBJ1 and OBJ2 look alike: numbers by EQL, lists, strings, vectors, arrays and other objects of the same\n"
           "class element by element. Symbols, functions and classes are equal only to themselves.")
{
    return kri_bool(w, kri_eq(argv[0], argv[1]) || kri_equal(w, argv[0], argv[1]));
}

bool kri_is_builtin(kr_value fn, kri_builtin_fn code)
{
    return kri_has_class(fn, KRI_CLASS_COMPILED_CODE) && kri_code_of(fn)->builtin == code;
}

enum kri_test kri_test_of(struct kr_vm *vm, kr_value test)
{
    if (kri_is_nil(test) || kri_eq(test, KRI_ABSENT))
        return KRI_TEST_EQL;
    if (kri_has_class(test, KRI_CLASS_SYMBOL))
        test = kri_symbol_function(vm, test);
    if (!kri_has_class(test, KRI_CLASS_COMPILED_CODE))
        return KRI_TEST_OTHER;
    kri_builtin_fn fn = kri_code_of(test)->builtin;
    if (fn == eq_fn || fn == eql_fn)
        return KRI_TEST_EQL;
    if (fn == equal_fn)
        return KRI_TEST_EQUAL;
    return fn && fn == kri_builtin_string_equal() ? KRI_TEST_STRING : KRI_TEST_OTHER;
}

bool kri_is_builtin_named(struct kr_vm *vm, kr_value fn, const char *name)
{
    if (kri_is_symbol(fn))
        fn = kri_symbol_function(vm, fn);
    if (!kri_has_class(fn, KRI_CLASS_COMPILED_CODE) || !kri_is_builtin_code(kri_code_of(fn)))
        return false;
    const unsigned char *text;
    size_t n;
    return kri_string_designator(vm, kri_slot(&kri_code_of(fn)->name), &text, &n) && n == strlen(name) && !memcmp(text, name, n);
}

/* Is the test of a call (argv[from..argc) are :key, :test, :test-not) one that C can make, without a key? */
static enum kri_test plain_test(struct kri_worker *w, int argc, const kr_value *argv, int from)
{
    if (argc == from)
        return KRI_TEST_EQL;
    const struct kri_symbols *s = &w->vm->sym;
    const kr_value allowed[] = {s->k_key, s->k_test, s->k_test_not};
    kri_check_keys(w, argc, argv, from, allowed, 3);
    kr_value key = kri_arg_key(argc, argv, from, s->k_key, KRI_NIL);
    kr_value test_not = kri_arg_key(argc, argv, from, s->k_test_not, KRI_NIL);
    if (!kri_is_nil(key) || !kri_is_nil(test_not))
        return KRI_TEST_OTHER;
    enum kri_test t = kri_test_of(w->vm, kri_arg_key(argc, argv, from, s->k_test, KRI_NIL));
    return t == KRI_TEST_STRING ? KRI_TEST_OTHER : t; /* string= refuses what is no string */
}

/* ---- conses ---- */

KR_BUILTIN(cons, "cons", "(car cdr)", "Return a fresh cons of CAR and CDR.")
{
    return kri_cons(w, argv[0], argv[1]);
}

/* PATH names the steps in the order they are taken. */
static inline __attribute__((always_inline)) kr_value steps(struct kri_worker *w, const kr_value *argv, const char *path)
{
    kr_value v = argv[0];
    for (; *path; path++) {
        if (KRI_UNLIKELY(!kri_is_list(v)))
            kri_argument_error(w, 0, v, KRI_E_NO_LIST);
        v = *path == 'a' ? kri_car(v) : kri_cdr(v);
    }
    return v;
}
#define CXR(name, path, meaning) \
    KR_BUILTIN(name, #name, "(list)", "Return " meaning " LIST. An error if a step meets what is no list.") { return steps(w, argv, path); }
CXR(car, "a", "the first element of")
CXR(cdr, "d", "the rest, behind the first element, of")
CXR(caar, "aa", "the car of the car of")
CXR(cadr, "da", "the second element of")
CXR(cdar, "ad", "the cdr of the car of")
CXR(cddr, "dd", "the rest behind the second element of")
CXR(caaar, "aaa", "the car of the car of the car of")
CXR(caadr, "daa", "the car of the second element of")
CXR(cadar, "ada", "the second element of the car of")
CXR(caddr, "dda", "the third element of")
CXR(cdaar, "aad", "the cdr of the car of the car of")
CXR(cdadr, "dad", "the cdr of the second element of")
CXR(cddar, "add", "the cddr of the car of")
CXR(cdddr, "ddd", "the rest behind the third element of")
CXR(caaaar, "aaaa", "the car of the car of the car of the car of")
CXR(caaadr, "daaa", "the caar of the second element of")
CXR(caadar, "adaa", "the caadr of the car of")
CXR(caaddr, "ddaa", "the car of the third element of")
CXR(cadaar, "aada", "the cadr of the caar of")
CXR(cadadr, "dada", "the second element of the second element of")
CXR(caddar, "adda", "the third element of the car of")
CXR(cadddr, "ddda", "the fourth element of")
CXR(cdaaar, "aaad", "the cdr of the caar of the car of")
CXR(cdaadr, "daad", "the cdar of the second element of")
CXR(cdadar, "adad", "the cdadr of the car of")
CXR(cdaddr, "ddad", "the cdr of the third element of")
CXR(cddaar, "aadd", "the cddr of the caar of")
CXR(cddadr, "dadd", "the cddr of the second element of")
CXR(cdddar, "addd", "the cdddr of the car of")
CXR(cddddr, "dddd", "the rest behind the fourth element of")
CXR(caddddr, "dddda", "the fifth element of")
CXR(first, "a", "the first element of")
CXR(rest, "d", "the rest, behind the first element, of")
CXR(second, "da", "the second element of")
CXR(third, "dda", "the third element of")
CXR(fourth, "ddda", "the fourth element of")
CXR(fifth, "dddda", "the fifth element of")
CXR(sixth, "ddddda", "the sixth element of")
CXR(seventh, "dddddda", "the seventh element of")
CXR(eighth, "ddddddda", "the eighth element of")
CXR(ninth, "dddddddda", "the ninth element of")
CXR(tenth, "ddddddddda", "the tenth element of")

static struct kri_cons *cons_arg(struct kri_worker *w, const kr_value *argv, int i)
{
    return kri_cons_of(kri_arg_cons(w, argv, i));
}

KR_BUILTIN(rplaca, "rplaca", "(cons a)", "Make A the car of CONS; return CONS.")
{
    struct kri_cons *c = cons_arg(w, argv, 0);
    kri_store(w, &c->head, &c->car, argv[1]);
    return argv[0];
}

KR_BUILTIN(rplacd, "rplacd", "(cons d)", "Make D the cdr of CONS; return CONS.")
{
    struct kri_cons *c = cons_arg(w, argv, 0);
    kri_store(w, &c->head, &c->cdr, argv[1]);
    return argv[0];
}

KR_BUILTIN(rplaca2, "rplaca2", "(cons value)", "Make VALUE the car of CONS; return VALUE.")
{
    struct kri_cons *c = cons_arg(w, argv, 0);
    kri_store(w, &c->head, &c->car, argv[1]);
    return argv[1];
}

KR_BUILTIN(rplacd2, "rplacd2", "(cons value)", "Make VALUE the cdr of CONS; return VALUE.")
{
    struct kri_cons *c = cons_arg(w, argv, 0);
    kri_store(w, &c->head, &c->cdr, argv[1]);
    return argv[1];
}

KR_BUILTIN(consp, "consp", "(object)", "Return T if OBJECT is a cons.")
{
    return kri_bool(w, kri_is_consp(w->vm, argv[0]));
}

KR_BUILTIN(atom, "atom", "(object)", "Return T if OBJECT is no cons.")
{
    return kri_bool(w, !kri_is_consp(w->vm, argv[0]));
}

KR_BUILTIN(listp, "listp", "(object)", "Return T if OBJECT is a cons or NIL.")
{
    return kri_bool(w, kri_is_nil(argv[0]) || kri_is_consp(w->vm, argv[0]));
}

KR_BUILTIN(null, "null", "(object)", "Return T if OBJECT is NIL.")
{
    return kri_bool(w, kri_is_nil(argv[0]));
}

KR_BUILTIN(not, "not", "(object)", "Return T if OBJECT is NIL, else NIL.")
{
    return kri_bool(w, kri_is_nil(argv[0]));
}

KR_BUILTIN(endp, "endp", "(list)", "Return T if LIST is NIL, NIL if it is a cons; anything else is an error.")
{
    return kri_bool(w, kri_is_nil(kri_arg_list(w, argv, 0)));
}

KR_BUILTIN(identity, "identity", "(obj)", "Return OBJ.")
{
    return argv[0];
}

/* ---- making lists ---- */

KR_BUILTIN(list, "list", "(&rest elements)", "Return a fresh list of ELEMENTS.")
{
    return kri_list_from(w, argv, (size_t)argc);
}

KR_BUILTIN(values, "values", "(&rest elements)", "Return a list of ELEMENTS: how a function returns several values.")
{
    return kri_list_from(w, argv, (size_t)argc);
}

KR_BUILTIN(list_star, "list*", "(element &rest elements)", "Return a list of the arguments whose last one is the rest of the list.")
{
    kr_value l = argv[argc - 1];
    for (int i = argc - 2; i >= 0; i--)
        l = kri_cons(w, argv[i], l);
    return l;
}

KR_BUILTIN(make_list, "make-list", "(size &key initial-element)", "Return a list of SIZE elements, each INITIAL-ELEMENT (NIL).")
{
    intptr_t n = kri_arg_natural(w, argv, 0);
    kr_value key = w->vm->sym.k_initial_element, l = KRI_NIL;
    kri_check_keys(w, argc, argv, 1, &key, 1);
    kr_value v = kri_arg_key(argc, argv, 1, key, KRI_NIL);
    size_t ticks = 0;
    for (; n > 0; n--, kri_tick(w, &ticks))
        l = kri_cons(w, v, l);
    return l;
}

KR_BUILTIN(acons, "acons", "(key datum alist)", "Return ALIST with the pair (KEY . DATUM) in front.")
{
    return kri_cons(w, kri_cons(w, argv[0], argv[1]), argv[2]);
}

/* Append the elements of LIST; its dotted tail is dropped. */
static void add_list(struct kri_worker *w, struct kri_lister *l, kr_value list)
{
    size_t ticks = 0;
    for (; kri_is_cons(list); list = kri_cdr(list), kri_tick(w, &ticks)) {
        kri_lister_add(w, l, kri_car(list));
        if (KRI_UNLIKELY(ticks == KRI_LONG_LIST))
            kri_list_length(w, list);
    }
}

static kr_value finish(struct kri_worker *w, struct kri_lister *l, kr_value tail)
{
    if (!l->tail)
        return tail;
    kri_store(w, &l->tail->head, &l->tail->cdr, tail);
    return l->head;
}

KR_BUILTIN(append, "append", "(&rest lists)",
           "Return a list of the elements of all LISTS. All but the last are copied; the last may be any object, which ends the result.")
{
    struct kri_lister l = {KRI_NIL, NULL};
    if (argc == 0)
        return KRI_NIL;
    for (int i = 0; i < argc - 1; i++)
        add_list(w, &l, kri_arg_list(w, argv, i));
    return finish(w, &l, argv[argc - 1]);
}

KR_BUILTIN(copy_alist, "copy-alist", "(alist)", "Return a copy of ALIST whose pairs are copies too.")
{
    struct kri_lister l = {KRI_NIL, NULL};
    size_t ticks = 0;
    for (kr_value a = kri_arg_list(w, argv, 0); kri_is_cons(a); a = kri_cdr(a), kri_tick(w, &ticks)) {
        kr_value pair = kri_car(a);
        kri_lister_add(w, &l, kri_is_cons(pair) ? kri_cons(w, kri_car(pair), kri_cdr(pair)) : pair);
    }
    return l.head;
}

static void check_depth(struct kri_worker *w, kr_value v)
{
    if (kri_native_exhausted(w))
        kri_error(w, KRI_E_STACK, KRI_NIL, "the structure is too deep: %V", v);
}

static kr_value copy_tree(struct kri_worker *w, kr_value tree)
{
    struct kri_lister l = {KRI_NIL, NULL};
    size_t ticks = 0;
    check_depth(w, KRI_NIL);
    for (; kri_is_cons(tree); tree = kri_cdr(tree), kri_tick(w, &ticks)) {
        kr_value a = kri_car(tree);
        kri_lister_add(w, &l, kri_is_cons(a) ? copy_tree(w, a) : a);
        if (KRI_UNLIKELY(ticks == KRI_LONG_LIST))
            kri_list_length(w, tree);
    }
    return finish(w, &l, tree);
}

KR_BUILTIN(copy_tree, "copy-tree", "(tree)", "Return a copy of TREE: all its conses are copied, its atoms shared.")
{
    return copy_tree(w, argv[0]);
}

static kr_value subst(struct kri_worker *w, kr_value new, kr_value old, kr_value tree, enum kri_test test)
{
    struct kri_lister l = {KRI_NIL, NULL};
    size_t ticks = 0;
    check_depth(w, KRI_NIL);
    while (!kri_same(w, old, tree, test) && kri_is_cons(tree)) {
        kr_value a = kri_car(tree);
        kri_lister_add(w, &l, kri_same(w, old, a, test) ? new : kri_is_cons(a) ? subst(w, new, old, a, test) : a);
        tree = kri_cdr(tree);
        kri_tick(w, &ticks);
    }
    return finish(w, &l, kri_same(w, old, tree, test) ? new : tree);
}

KR_BUILTIN(subst, "subst", "(new old tree &key key test test-not)",
           "Return a copy of TREE with NEW in place of each subtree or atom that OLD matches: by equal, unless TEST or TEST-NOT says otherwise.")
{
    enum kri_test t = argc == 3 ? KRI_TEST_EQUAL : plain_test(w, argc, argv, 3);
    if (t == KRI_TEST_OTHER)
        return kri_tail_call_symbol(w, w->vm->sym.seq_subst, argc);
    return subst(w, argv[0], argv[1], argv[2], t);
}

static kr_value nsubst(struct kri_worker *w, kr_value new, kr_value old, kr_value tree)
{
    size_t ticks = 0;
    check_depth(w, KRI_NIL);
    if (kri_same(w, old, tree, KRI_TEST_EQL))
        return new;
    for (kr_value t = tree; kri_is_cons(t); t = kri_cdr(t), kri_tick(w, &ticks)) {
        struct kri_cons *c = kri_cons_of(t);
        kr_value a = kri_car(t), d = kri_cdr(t);
        if (kri_same(w, old, a, KRI_TEST_EQL))
            kri_store(w, &c->head, &c->car, new);
        else if (kri_is_cons(a))
            nsubst(w, new, old, a);
        if (kri_same(w, old, d, KRI_TEST_EQL)) {
            kri_store(w, &c->head, &c->cdr, new);
            break;
        }
    }
    return tree;
}

KR_BUILTIN(nsubst, "nsubst", "(new old tree)", "Put NEW in place of each OLD (by EQL) in TREE itself; return the changed tree.")
{
    return nsubst(w, argv[0], argv[1], argv[2]);
}

static bool tree_equal(struct kri_worker *w, kr_value a, kr_value b)
{
    size_t ticks = 0;
    check_depth(w, KRI_NIL);
    for (; kri_is_cons(a) && kri_is_cons(b); a = kri_cdr(a), b = kri_cdr(b), kri_tick(w, &ticks))
        if (!tree_equal(w, kri_car(a), kri_car(b)))
            return false;
    return kri_same(w, a, b, KRI_TEST_EQL);
}

KR_BUILTIN(tree_equal, "tree-equal", "(tree1 tree2)", "Return T if the trees have the same shape and EQL leaves.")
{
    return kri_bool(w, tree_equal(w, argv[0], argv[1]));
}

KR_BUILTIN(pairlis, "pairlis", "(keys data &optional alist)",
           "Return an association list that pairs KEYS with DATA, in order, in front of ALIST. Missing data are NIL.")
{
    struct kri_lister l = {KRI_NIL, NULL};
    kr_value k = kri_arg_list(w, argv, 0), d = kri_arg_list(w, argv, 1);
    size_t ticks = 0;
    for (; kri_is_cons(k); k = kri_cdr(k), kri_tick(w, &ticks)) {
        kri_lister_add(w, &l, kri_cons(w, kri_car(k), kri_is_cons(d) ? kri_car(d) : KRI_NIL));
        d = kri_is_cons(d) ? kri_cdr(d) : KRI_NIL;
    }
    return finish(w, &l, kri_arg_optional(argc, argv, 2, KRI_NIL));
}

/* ---- walking ---- */

size_t kri_list_length(struct kri_worker *w, kr_value list)
{
    /* Brent's search for a cycle: MARK stays, then jumps to where the walk is, at distances that double. */
    kr_value mark = list, l = list;
    size_t n = 0, jump = 1024;
    for (; kri_is_cons(l); l = kri_cdr(l)) {
        if (KRI_UNLIKELY(++n == jump)) {
            jump *= 2;
            mark = l;
            kri_poll(w);
        } else if (KRI_UNLIKELY(n > 1 && kri_eq(l, mark))) {
            kri_error(w, KRI_E_CIRCULAR, KRI_NIL, NULL);
        }
    }
    return n;
}

static kr_value skip(struct kri_worker *w, kr_value l, intptr_t n)
{
    size_t ticks = 0;
    for (; n > 0 && kri_is_cons(l); n--, l = kri_cdr(l))
        kri_tick(w, &ticks);
    return l;
}

KR_BUILTIN(nthcdr, "nthcdr", "(n list)", "Return LIST without its first N conses, or its last cdr if it has fewer.")
{
    intptr_t n = kri_arg_natural(w, argv, 0);
    return skip(w, kri_arg_list(w, argv, 1), n);
}

KR_BUILTIN(nth, "nth", "(n list)", "Return element N (from 0) of LIST, NIL if it has fewer. A dotted tail at N is an error.")
{
    intptr_t n = kri_arg_natural(w, argv, 0);
    kr_value l = skip(w, kri_arg_list(w, argv, 1), n);
    if (!kri_is_list(l))
        kri_argument_error(w, 1, argv[1], KRI_E_NO_LIST);
    return kri_car(l);
}

static kr_value last_cons(struct kri_worker *w, kr_value l)
{
    kr_value last = KRI_NIL;
    size_t ticks = 0;
    for (; kri_is_cons(l); l = kri_cdr(l), kri_tick(w, &ticks))
        last = l;
    return last;
}

KR_BUILTIN(last, "last", "(list &optional (n 1))", "Return the last N conses (one) of LIST, NIL if it is empty.")
{
    kr_value list = kri_arg_list(w, argv, 0);
    if (argc == 1)
        return last_cons(w, list);
    intptr_t n = kri_arg_natural(w, argv, 1), length = (intptr_t)kri_list_length(w, list);
    return skip(w, list, length > n ? length - n : 0);
}

KR_BUILTIN(butlast, "butlast", "(list &optional (n 1))", "Return a copy of LIST without its last N elements.")
{
    kr_value list = kri_arg_list(w, argv, 0);
    intptr_t n = argc > 1 ? kri_arg_natural(w, argv, 1) : 1;
    intptr_t keep = (intptr_t)kri_list_length(w, list) - n;
    struct kri_lister l = {KRI_NIL, NULL};
    size_t ticks = 0;
    for (; keep > 0 && kri_is_cons(list); keep--, list = kri_cdr(list), kri_tick(w, &ticks))
        kri_lister_add(w, &l, kri_car(list));
    return l.head;
}

KR_BUILTIN(nbutlast, "nbutlast", "(list &optional (n 1))", "Cut the last N elements off LIST itself and return it.")
{
    kr_value list = kri_arg_list(w, argv, 0);
    intptr_t n = argc > 1 ? kri_arg_natural(w, argv, 1) : 1;
    intptr_t keep = (intptr_t)kri_list_length(w, list) - n;
    if (keep <= 0)
        return KRI_NIL;
    kr_value last = skip(w, list, keep - 1);
    if (kri_is_cons(last))
        kri_store(w, kri_ptr(last), &kri_cons_of(last)->cdr, KRI_NIL);
    return list;
}

KR_BUILTIN(nconc, "nconc", "(&rest lists)", "Join LISTS by changing their last cdrs; return the result. Atoms among LISTS are left out.")
{
    kr_value head = KRI_NIL, last = KRI_NIL;
    for (int i = 0; i < argc; i++) {
        if (!kri_is_cons(argv[i]))
            continue;
        if (kri_is_nil(head))
            head = argv[i];
        else
            kri_store(w, kri_ptr(last), &kri_cons_of(last)->cdr, argv[i]);
        bool another = false;
        for (int j = i + 1; j < argc && !another; j++)
            another = kri_is_cons(argv[j]);
        if (!another)
            break;
        last = last_cons(w, argv[i]);
    }
    return head;
}

/* Reverse LIST in place in front of TAIL. */
static kr_value nreconc(struct kri_worker *w, kr_value list, kr_value tail)
{
    size_t ticks = 0;
    while (kri_is_cons(list)) {
        kr_value next = kri_cdr(list);
        kri_store(w, kri_ptr(list), &kri_cons_of(list)->cdr, tail);
        tail = list;
        list = next;
        kri_tick(w, &ticks);
    }
    return tail;
}

KR_BUILTIN(nreconc, "nreconc", "(list tail)", "Reverse LIST itself and put it in front of TAIL.")
{
    return nreconc(w, kri_arg_list(w, argv, 0), argv[1]);
}

KR_BUILTIN(revappend, "revappend", "(list tail)", "Return the reverse of LIST in front of TAIL.")
{
    kr_value l = kri_arg_list(w, argv, 0), r = argv[1];
    size_t ticks = 0;
    for (; kri_is_cons(l); l = kri_cdr(l), kri_tick(w, &ticks))
        r = kri_cons(w, kri_car(l), r);
    return r;
}

/* Elements of the vector in reverse order, exchanged in place. */
static void reverse_vector(struct kri_worker *w, struct kri_span s)
{
    size_t i = s.start, j = s.start + s.length, ticks = 0;
    struct kri_cell *c = kri_ptr(s.vector);
    if (kri_element(w->vm, s.vector) == KRI_ELEMENT_T) {
        kr_value *at = kri_vector_of(s.vector)->at;
        for (; j - i > 1 && i < j; i++) {
            kr_value v = kri_slot(&at[i]);
            j--;
            kri_store(w, c, &at[i], kri_slot(&at[j]));
            kri_store(w, c, &at[j], v);
            kri_tick(w, &ticks);
        }
        return;
    }
    for (; j - i > 1 && i < j; i++) {
        kr_value v = kri_vector_ref(w, s.vector, i);
        j--;
        kri_vector_set(w, s.vector, i, kri_vector_ref(w, s.vector, j));
        kri_vector_set(w, s.vector, j, v);
        kri_tick(w, &ticks);
    }
}

KR_BUILTIN(nreverse, "nreverse", "(sequence)", "Reverse SEQUENCE itself; return it (of a list, its former last cons).")
{
    struct kri_span s;
    if (kri_is_list(argv[0]))
        return nreconc(w, argv[0], KRI_NIL);
    if (!kri_span_of(w->vm, argv[0], &s))
        kri_argument_error(w, 0, argv[0], KRI_E_NO_SEQUENCE);
    reverse_vector(w, s);
    return argv[0];
}

KR_BUILTIN(reverse, "reverse", "(sequence)", "Return a reversed copy of SEQUENCE.")
{
    struct kri_span s;
    if (kri_is_list(argv[0])) {
        kr_value r = KRI_NIL;
        size_t ticks = 0;
        for (kr_value l = argv[0]; kri_is_cons(l); l = kri_cdr(l), kri_tick(w, &ticks))
            r = kri_cons(w, kri_car(l), r);
        return r;
    }
    if (!kri_span_of(w->vm, argv[0], &s))
        kri_argument_error(w, 0, argv[0], KRI_E_NO_SEQUENCE);
    kr_value copy = kri_make_vector_of(w, kri_ptr(s.vector)->cls, s.length);
    kri_vector_copy(w, copy, 0, s.vector, s.start, s.length);
    reverse_vector(w, (struct kri_span){copy, 0, s.length});
    return copy;
}

KR_BUILTIN(ldiff, "ldiff", "(list tail)", "Return a copy of the part of LIST before TAIL, one of its tails; of all of it if TAIL is none.")
{
    struct kri_lister l = {KRI_NIL, NULL};
    kr_value a = kri_arg_list(w, argv, 0);
    size_t ticks = 0;
    for (; kri_is_cons(a) && !kri_eq(a, argv[1]); a = kri_cdr(a), kri_tick(w, &ticks))
        kri_lister_add(w, &l, kri_car(a));
    return kri_eq(a, argv[1]) ? l.head : finish(w, &l, a);
}

KR_BUILTIN(tailp, "tailp", "(tail list)", "Return T if TAIL is one of the conses of LIST, or its last cdr.")
{
    kr_value a = kri_arg_list(w, argv, 1);
    size_t ticks = 0;
    for (; kri_is_cons(a); a = kri_cdr(a), kri_tick(w, &ticks))
        if (kri_eq(a, argv[0]))
            return w->vm->sym.t;
    return kri_bool(w, kri_same(w, a, argv[0], KRI_TEST_EQL));
}

/* ---- searching ---- */

static kr_value member(struct kri_worker *w, kr_value item, kr_value l, enum kri_test test)
{
    size_t ticks = 0;
    if (test == KRI_TEST_EQL && kri_eq_suffices(item)) {
        for (; kri_is_cons(l); l = kri_cdr(l), kri_tick(w, &ticks))
            if (kri_eq(kri_car(l), item))
                return l;
        return KRI_NIL;
    }
    for (; kri_is_cons(l); l = kri_cdr(l), kri_tick(w, &ticks))
        if (kri_same(w, item, kri_car(l), test))
            return l;
    return KRI_NIL;
}

KR_BUILTIN(memq, "memq", "(item list)", "Return the tail of LIST that begins with ITEM itself, or NIL.")
{
    kr_value l = argv[1];
    size_t ticks = 0;
    for (; kri_is_cons(l); l = kri_cdr(l), kri_tick(w, &ticks))
        if (kri_eq(kri_car(l), argv[0]))
            return l;
    return KRI_NIL;
}

/* How member, assoc and rassoc compare: OTHER if a function must be called that is no builtin. */
struct match {
    enum kri_test test;
    kr_value key;
    kri_builtin_fn code; /* of key; NULL without */
};

static struct match match_of(struct kri_worker *w, int argc, kr_value *argv)
{
    struct match m = {KRI_TEST_EQL, KRI_NIL, NULL};
    if (argc == 2)
        return m;
    const struct kri_symbols *s = &w->vm->sym;
    const kr_value allowed[] = {s->k_key, s->k_test, s->k_test_not};
    kri_check_keys(w, argc, argv, 2, allowed, 3);
    m.key = kri_arg_key(argc, argv, 2, s->k_key, KRI_NIL);
    m.test = kri_test_of(w->vm, kri_arg_key(argc, argv, 2, s->k_test, KRI_NIL));
    if (!kri_is_nil(kri_arg_key(argc, argv, 2, s->k_test_not, KRI_NIL)) || m.test == KRI_TEST_STRING || !kri_direct(w, &m.key, 1, &m.code))
        m.test = KRI_TEST_OTHER;
    return m;
}

/* member by a key, a builtin. */
static kr_value member_by(struct kri_worker *w, kr_value item, kr_value l, const struct match *m)
{
    struct kri_direct d;
    size_t ticks = 0;
    kri_direct_begin(w, &d);
    while (kri_is_cons(l) && !kri_same(w, item, kri_direct_call1(w, &d, m->key, m->code, kri_car(l)), m->test)) {
        l = kri_cdr(l);
        kri_tick(w, &ticks);
    }
    kri_direct_end(w, &d);
    return kri_is_cons(l) ? l : KRI_NIL;
}

KR_BUILTIN(member, "member", "(item list &key key test test-not)",
           "Return the tail of LIST that begins with the first element ITEM matches, or NIL. The test (EQL) gets ITEM and what KEY\n"
           "returns for the element; TEST-NOT asks for the first element that fails its test.")
{
    struct match m = match_of(w, argc, argv);
    if (m.test == KRI_TEST_OTHER)
        return kri_tail_call_symbol(w, w->vm->sym.seq_member, argc);
    return m.code ? member_by(w, argv[0], argv[1], &m) : member(w, argv[0], argv[1], m.test);
}

KR_BUILTIN(supermember, "supermember", "(item list key test test-not)",
           "MEMBER with the keyword arguments by position; NIL stands for one not given.")
{
    if (kri_is_nil(argv[2]) && kri_is_nil(argv[4])) {
        enum kri_test t = kri_test_of(w->vm, argv[3]);
        if (t == KRI_TEST_EQL || t == KRI_TEST_EQUAL)
            return member(w, argv[0], argv[1], t);
    }
    return kri_tail_call_symbol(w, w->vm->sym.seq_supermember, argc);
}

KR_BUILTIN(adjoin, "adjoin", "(item list &key key test test-not)",
           "Return LIST if it has an element that matches ITEM, else LIST with ITEM in front. KEY is applied to ITEM too.")
{
    enum kri_test t = plain_test(w, argc, argv, 2);
    if (t == KRI_TEST_OTHER)
        return kri_tail_call_symbol(w, w->vm->sym.seq_adjoin, argc);
    return kri_is_nil(member(w, argv[0], argv[1], t)) ? kri_cons(w, argv[0], argv[1]) : argv[1];
}

KR_BUILTIN(assq, "assq", "(item alist)", "Return the first pair of ALIST whose car is ITEM itself, or NIL. Elements must be pairs or NIL.")
{
    size_t ticks = 0;
    for (kr_value l = argv[1]; kri_is_cons(l); l = kri_cdr(l), kri_tick(w, &ticks)) {
        kr_value pair = kri_car(l);
        if (kri_is_cons(pair)) {
            if (kri_eq(kri_car(pair), argv[0]))
                return pair;
        } else if (!kri_is_nil(pair)) {
            kri_argument_error(w, 1, pair, KRI_E_ALIST);
        }
    }
    return KRI_NIL;
}

static kr_value assoc(struct kri_worker *w, kr_value item, kr_value l, enum kri_test test, bool by_cdr)
{
    bool identity = test == KRI_TEST_EQL && kri_eq_suffices(item);
    size_t ticks = 0;
    for (; kri_is_cons(l); l = kri_cdr(l), kri_tick(w, &ticks)) {
        kr_value pair = kri_car(l);
        if (!kri_is_cons(pair))
            continue;
        kr_value v = by_cdr ? kri_cdr(pair) : kri_car(pair);
        if (kri_eq(v, item) || (!identity && kri_same(w, item, v, test)))
            return pair;
    }
    return KRI_NIL;
}

/* assoc by a key, a builtin, that gets the pair, or rassoc, whose key gets the cdr. */
static kr_value assoc_by(struct kri_worker *w, kr_value item, kr_value l, const struct match *m, bool by_cdr)
{
    struct kri_direct d;
    kr_value found = KRI_NIL;
    size_t ticks = 0;
    kri_direct_begin(w, &d);
    for (; kri_is_cons(l) && kri_is_nil(found); l = kri_cdr(l), kri_tick(w, &ticks)) {
        kr_value pair = kri_car(l);
        if (kri_is_cons(pair) && kri_same(w, item, kri_direct_call1(w, &d, m->key, m->code, by_cdr ? kri_cdr(pair) : pair), m->test))
            found = pair;
    }
    kri_direct_end(w, &d);
    return found;
}

KR_BUILTIN(assoc, "assoc", "(item alist &key key test test-not)",
           "Return the first pair of ALIST whose car matches ITEM, or NIL. Elements that are no pairs are skipped. As in EusLisp the\n"
           "function KEY is given the whole pair.")
{
    struct match m = match_of(w, argc, argv);
    if (m.test == KRI_TEST_OTHER)
        return kri_tail_call_symbol(w, w->vm->sym.seq_assoc, argc);
    return m.code ? assoc_by(w, argv[0], argv[1], &m, false) : assoc(w, argv[0], argv[1], m.test, false);
}

KR_BUILTIN(superassoc, "superassoc", "(item alist key test test-not)",
           "ASSOC with the keyword arguments by position; NIL stands for one not given.")
{
    if (kri_is_nil(argv[2]) && kri_is_nil(argv[4])) {
        enum kri_test t = kri_test_of(w->vm, argv[3]);
        if (t == KRI_TEST_EQL || t == KRI_TEST_EQUAL)
            return assoc(w, argv[0], argv[1], t, false);
    }
    return kri_tail_call_symbol(w, w->vm->sym.seq_superassoc, argc);
}

KR_BUILTIN(rassoc, "rassoc", "(item alist &key key test test-not)",
           "Return the first pair of ALIST whose cdr matches ITEM, or NIL. Elements that are no pairs are skipped.")
{
    struct match m = match_of(w, argc, argv);
    if (m.test == KRI_TEST_OTHER)
        return kri_tail_call_symbol(w, w->vm->sym.seq_rassoc, argc);
    return m.code ? assoc_by(w, argv[0], argv[1], &m, true) : assoc(w, argv[0], argv[1], m.test, true);
}

KR_BUILTIN(getf, "getf", "(plist indicator &optional default)",
           "Return the value behind INDICATOR in PLIST, a list of indicators and values in turn, or DEFAULT (NIL).")
{
    size_t ticks = 0;
    for (kr_value l = kri_arg_list(w, argv, 0); kri_is_cons(l) && kri_is_cons(kri_cdr(l)); l = kri_cdr(kri_cdr(l)), kri_tick(w, &ticks))
        if (kri_eq(kri_car(l), argv[1]))
            return kri_car(kri_cdr(l));
    return kri_arg_optional(argc, argv, 2, KRI_NIL);
}

KR_BUILTIN(put_f, "lisp::%putf", "(plist indicator value)",
           "Return PLIST with VALUE behind INDICATOR: changed in place if it has INDICATOR, else with both in front.")
{
    size_t ticks = 0;
    for (kr_value l = kri_arg_list(w, argv, 0); kri_is_cons(l) && kri_is_cons(kri_cdr(l)); l = kri_cdr(kri_cdr(l)), kri_tick(w, &ticks))
        if (kri_eq(kri_car(l), argv[1])) {
            kr_value d = kri_cdr(l);
            kri_store(w, kri_ptr(d), &kri_cons_of(d)->car, argv[2]);
            return argv[0];
        }
    return kri_cons(w, argv[1], kri_cons(w, argv[2], argv[0]));
}

/* ---- EusLisp's extras ---- */

KR_BUILTIN(list_insert, "list-insert", "(item pos list)",
           "Insert ITEM in LIST itself before position POS, at its end if it is shorter; return the list.")
{
    intptr_t n = kri_arg_natural(w, argv, 1);
    kr_value list = kri_arg_list(w, argv, 2);
    if (n == 0 || kri_is_nil(list))
        return kri_cons(w, argv[0], list);
    kr_value at = list;
    size_t ticks = 0;
    for (; n > 1 && kri_is_cons(kri_cdr(at)); n--, at = kri_cdr(at))
        kri_tick(w, &ticks);
    kri_store(w, kri_ptr(at), &kri_cons_of(at)->cdr, kri_cons(w, argv[0], kri_cdr(at)));
    return list;
}

KR_BUILTIN(list_delete, "list-delete", "(list pos)", "Take the element at position POS, if LIST has it, out of LIST itself; return the list.")
{
    kr_value list = kri_arg_list(w, argv, 0);
    intptr_t n = kri_arg_natural(w, argv, 1);
    if (n == 0)
        return kri_cdr(list);
    kr_value at = skip(w, list, n - 1);
    if (!kri_is_cons(at))
        kri_argument_error(w, 0, argv[0], KRI_E_NO_LIST);
    if (kri_is_cons(kri_cdr(at)))
        kri_store(w, kri_ptr(at), &kri_cons_of(at)->cdr, kri_cdr(kri_cdr(at)));
    return list;
}

static void flatten(struct kri_worker *w, kr_value tree, struct kri_lister *l)
{
    size_t ticks = 0;
    check_depth(w, KRI_NIL);
    for (; kri_is_cons(tree); tree = kri_cdr(tree), kri_tick(w, &ticks)) {
        kr_value a = kri_car(tree);
        if (kri_is_cons(a))
            flatten(w, a, l);
        else if (!kri_is_nil(a))
            kri_lister_add(w, l, a);
    }
    if (!kri_is_nil(tree))
        kri_lister_add(w, l, tree);
}

KR_BUILTIN(flatten, "flatten", "(tree &optional accumulator)",
           "Return a list of the atoms of TREE other than NIL, in order, in front of the list ACCUMULATOR.")
{
    struct kri_lister l = {KRI_NIL, NULL};
    flatten(w, argv[0], &l);
    return finish(w, &l, kri_arg_optional(argc, argv, 1, KRI_NIL));
}

KR_BUILTIN(unique, "unique", "(list)", "Return LIST without its repeated elements (by EQL); of equal ones the last stays.")
{
    struct kri_lister l = {KRI_NIL, NULL};
    size_t ticks = 0;
    for (kr_value a = kri_arg_list(w, argv, 0); kri_is_cons(a); a = kri_cdr(a), kri_tick(w, &ticks))
        if (kri_is_nil(member(w, kri_car(a), kri_cdr(a), KRI_TEST_EQL)))
            kri_lister_add(w, &l, kri_car(a));
    return l.head;
}

KR_BUILTIN(transpose_list, "transpose-list", "(lists)",
           "Return the list of the first elements of LISTS, of the second, and so on, as many as the first list has.")
{
    struct kri_lister all = {KRI_NIL, NULL};
    kr_value lists = kri_arg_list(w, argv, 0), rows;
    size_t ticks = 0;
    {
        struct kri_lister copy = {KRI_NIL, NULL}; /* the tails yet to go, one for each list */
        add_list(w, &copy, lists);
        rows = copy.head;
    }
    while (kri_is_cons(rows) && kri_is_cons(kri_car(rows))) {
        struct kri_lister column = {KRI_NIL, NULL};
        for (kr_value r = rows; kri_is_cons(r); r = kri_cdr(r), kri_tick(w, &ticks)) {
            kr_value row = kri_car(r);
            if (!kri_is_list(row))
                kri_argument_error(w, 0, row, KRI_E_NO_LIST);
            kri_lister_add(w, &column, kri_car(row));
            kri_store(w, kri_ptr(r), &kri_cons_of(r)->car, kri_cdr(row));
        }
        kri_lister_add(w, &all, column.head);
    }
    return all.head;
}

KR_BUILTIN(rotate_list, "rotate-list", "(list)", "Return a copy of LIST with its first element moved to the end.")
{
    struct kri_lister l = {KRI_NIL, NULL};
    kr_value list = kri_arg_list(w, argv, 0);
    add_list(w, &l, kri_cdr(list));
    kri_lister_add(w, &l, kri_car(list));
    return l.head;
}

KR_BUILTIN(list_dimensions, "list-dimensions", "(list)", "Return the lengths of LIST, of its first element, of that one's, and so on.")
{
    struct kri_lister l = {KRI_NIL, NULL};
    for (kr_value a = argv[0]; kri_is_cons(a); a = kri_car(a)) {
        check_depth(w, KRI_NIL);
        if (l.tail && kri_list_length(w, l.head) > 64) /* a list that is its own first element */
            kri_argument_error(w, 0, argv[0], KRI_E_CIRCULAR);
        kri_lister_add(w, &l, kri_fixnum((intptr_t)kri_list_length(w, a)));
    }
    return l.head;
}

const struct kri_builtin *const kri_builtins_list[] = {
    &eq_def, &eql_def, &equal_def, &cons_def, &car_def, &cdr_def, &caar_def, &cadr_def, &cdar_def, &cddr_def, &caaar_def, &caadr_def,
    &cadar_def, &caddr_def, &cdaar_def, &cdadr_def, &cddar_def, &cdddr_def, &caaaar_def, &caaadr_def, &caadar_def, &caaddr_def,
    &cadaar_def, &cadadr_def, &caddar_def, &cadddr_def, &cdaaar_def, &cdaadr_def, &cdadar_def, &cdaddr_def, &cddaar_def, &cddadr_def,
    &cdddar_def, &cddddr_def, &caddddr_def, &first_def, &rest_def, &second_def, &third_def, &fourth_def, &fifth_def, &sixth_def,
    &seventh_def, &eighth_def, &ninth_def, &tenth_def, &rplaca_def, &rplacd_def, &rplaca2_def, &rplacd2_def, &consp_def, &atom_def,
    &listp_def, &null_def, &not_def, &endp_def, &identity_def, &list_def, &values_def, &list_star_def, &make_list_def, &acons_def,
    &append_def, &copy_alist_def, &copy_tree_def, &subst_def, &nsubst_def, &tree_equal_def, &pairlis_def, &nthcdr_def, &nth_def,
    &last_def, &butlast_def, &nbutlast_def, &nconc_def, &nreconc_def, &revappend_def, &nreverse_def, &reverse_def, &ldiff_def,
    &tailp_def, &memq_def, &member_def, &supermember_def, &adjoin_def, &assq_def, &assoc_def, &superassoc_def, &rassoc_def,
    &getf_def, &put_f_def, &list_insert_def, &list_delete_def, &flatten_def, &unique_def, &transpose_list_def, &rotate_list_def,
    &list_dimensions_def, NULL,
};
