/* package.c -- symbols and packages.
 *
 * A package has two open-addressing tables, as EusLisp's packages do: INTSYMVECTOR holds every symbol present in it,
 * SYMVECTOR those that are external. A free place holds fixnum 0, a removed symbol's place fixnum 1; NIL stands for itself.
 * The counts are of places in use, removed ones included.
 *
 * Lookups take no lock. A table only ever changes by single stores under package_lock: a symbol appears, a place becomes
 * "removed", or the whole vector is replaced by a larger one that was filled before the store. A reader therefore sees each
 * symbol that was present throughout its search; one that it misses was absent at some moment during it. kri_store is a
 * release and slot loads depend on the pointer they load, so whoever finds a symbol sees its name. Nothing is allocated
 * while the lock is held: an insertion brings its symbol and, if the table is full, a larger vector, and starts again when
 * it finds that the table has grown meanwhile. */
#include "lisp/package.h"

enum { FIRST_TABLE = 32 };
enum table { ALL, EXTERNAL };
#define FREE_PLACE kri_fixnum(0)
#define REMOVED_PLACE kri_fixnum(1)

/* What C programs' names meant may be otherwise now (lisp/api_name.c). */
static void names_changed(struct kri_worker *w) { kri_fetch_add(&w->vm->names_epoch, 1); }

static uint64_t hash_name(const char *name, size_t n)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n; i++)
        h = (h ^ (unsigned char)name[i]) * 0x100000001b3u;
    return h ^ h >> 29;
}

static kr_value *table_slot(struct kri_package *p, enum table t) { return t == ALL ? &p->intsymvector : &p->symvector; }
static kr_value *count_slot(struct kri_package *p, enum table t) { return t == ALL ? &p->intsymcount : &p->symcount; }

static struct kri_string *pname(struct kr_vm *vm, kr_value symbol)
{
    return kri_string_of(kri_symbol_of(vm, symbol)->pname);
}

static bool name_is(struct kr_vm *vm, kr_value symbol, const char *name, size_t n)
{
    struct kri_string *s = pname(vm, symbol);
    return s->head.length == n && memcmp(s->byte, name, n) == 0;
}

/* The place of the symbol called NAME in VECTOR, or -1. */
static intptr_t place_of(struct kr_vm *vm, kr_value vector, const char *name, size_t n, uint64_t h)
{
    struct kri_vector *v = kri_vector_of(vector);
    size_t mask = v->head.length - 1;
    for (size_t i = h & mask;; i = (i + 1) & mask) {
        kr_value e = kri_slot(&v->at[i]);
        if (kri_eq(e, FREE_PLACE))
            return -1;
        if (!kri_is_fixnum(e) && name_is(vm, e, name, n))
            return (intptr_t)i;
    }
}

static bool find_in(struct kr_vm *vm, struct kri_package *p, enum table t, const char *name, size_t n, uint64_t h, kr_value *found)
{
    kr_value vector = kri_slot(table_slot(p, t));
    intptr_t i = place_of(vm, vector, name, n, h);
    if (i < 0)
        return false;
    *found = kri_slot(&kri_vector_of(vector)->at[i]);
    return !kri_is_fixnum(*found); /* it may have been removed since */
}

/* Present in PACKAGE, or external in one that it uses. */
static bool find_accessible(struct kr_vm *vm, struct kri_package *p, const char *name, size_t n, uint64_t h, kr_value *found)
{
    if (find_in(vm, p, ALL, name, n, h, found))
        return true;
    for (kr_value l = kri_slot(&p->use); kri_is_cons(l); l = kri_cdr(l))
        if (find_in(vm, kri_package_of(kri_car(l)), EXTERNAL, name, n, h, found))
            return true;
    return false;
}

/* Length of the vector that table T needs before one more symbol fits, 0 if it fits now. Caller holds package_lock. */
static size_t needed_locked(struct kri_package *p, enum table t)
{
    size_t used = (size_t)kri_fixnum_value(*count_slot(p, t)), length = kri_length(*table_slot(p, t));
    return (used + 1) * 5 > length * 3 ? length * 2 : 0;
}

static void place(struct kri_worker *w, kr_value vector, kr_value symbol)
{
    struct kri_vector *v = kri_vector_of(vector);
    struct kri_string *s = pname(w->vm, symbol);
    size_t mask = v->head.length - 1, i = hash_name((char *)s->byte, s->head.length) & mask;
    while (!kri_eq(v->at[i], FREE_PLACE))
        i = (i + 1) & mask;
    kri_store(w, &v->head, &v->at[i], symbol);
}

/* Put SYMBOL in table T, over another of the same name if there is one. LARGER is a fresh vector if one was needed. */
static void insert_locked(struct kri_worker *w, struct kri_package *p, enum table t, kr_value symbol, kr_value larger)
{
    struct kr_vm *vm = w->vm;
    struct kri_string *s = pname(vm, symbol);
    uint64_t h = hash_name((char *)s->byte, s->head.length);
    kr_value vector = *table_slot(p, t);
    intptr_t at = place_of(vm, vector, (char *)s->byte, s->head.length, h);
    if (at >= 0) {
        kri_store(w, kri_ptr(vector), &kri_vector_of(vector)->at[at], symbol);
        return;
    }
    if (needed_locked(p, t)) {
        intptr_t live = 0;
        struct kri_vector *old = kri_vector_of(vector);
        for (size_t i = 0; i < old->head.length; i++) {
            if (kri_is_fixnum(old->at[i]))
                continue;
            place(w, larger, old->at[i]);
            live++;
        }
        place(w, larger, symbol);
        kri_store(w, &p->head, count_slot(p, t), kri_fixnum(live + 1));
        kri_store(w, &p->head, table_slot(p, t), larger);
        return;
    }
    struct kri_vector *v = kri_vector_of(vector);
    size_t mask = v->head.length - 1, i = h & mask;
    while (!kri_is_fixnum(v->at[i]))
        i = (i + 1) & mask;
    if (kri_eq(v->at[i], FREE_PLACE))
        kri_store(w, &p->head, count_slot(p, t), kri_fixnum(kri_fixnum_value(*count_slot(p, t)) + 1));
    kri_store(w, &v->head, &v->at[i], symbol);
}

static kr_value make_table(struct kri_worker *w, size_t length)
{
    kr_value v = kri_make_vector(w, length);
    for (size_t i = 0; i < length; i++)
        kri_vector_of(v)->at[i] = FREE_PLACE;
    return v;
}

/* Enter SYMBOL in PACKAGE's table of all symbols and, if EXTERNAL_TOO, in that of the external ones. With UNLESS_ACCESSIBLE a
 * symbol of that name found first, under the lock, is returned instead. */
static kr_value enter(struct kri_worker *w, kr_value symbol, kr_value package, bool external_too, bool unless_accessible)
{
    struct kr_vm *vm = w->vm;
    struct kri_package *p = kri_package_of(package);
    struct kri_string *s = pname(vm, symbol);
    uint64_t h = hash_name((char *)s->byte, s->head.length);
    kr_value larger[2] = {KRI_NIL, KRI_NIL};
    for (;;) {
        kr_value found;
        kri_lock(w, &vm->package_lock);
        if (unless_accessible && find_accessible(vm, p, (char *)s->byte, s->head.length, h, &found)) {
            kri_unlock(&vm->package_lock);
            return found;
        }
        size_t need[2] = {needed_locked(p, ALL), external_too ? needed_locked(p, EXTERNAL) : 0};
        bool enough = true;
        for (int t = ALL; t <= EXTERNAL; t++)
            enough = enough && (need[t] == 0 || (!kri_is_nil(larger[t]) && kri_length(larger[t]) == need[t]));
        if (enough) {
            insert_locked(w, p, ALL, symbol, larger[ALL]);
            if (external_too)
                insert_locked(w, p, EXTERNAL, symbol, larger[EXTERNAL]);
            kri_unlock(&vm->package_lock);
            return symbol;
        }
        kri_unlock(&vm->package_lock);
        for (int t = ALL; t <= EXTERNAL; t++)
            if (need[t])
                larger[t] = make_table(w, need[t]);
    }
}

/* ---- symbols ---- */

kr_value kri_make_symbol(struct kri_worker *w, kr_value name_string)
{
    struct kri_symbol *s = (struct kri_symbol *)kri_make(w, KRI_CLASS_SYMBOL, 0, 8);
    s->value = KRI_UNBOUND;
    s->vtype = kri_fixnum(1);
    s->function = w->vm->undefined;
    s->pname = name_string;
    s->special = kri_fixnum(0);
    return kri_value_of(s);
}

kr_value kri_intern(struct kri_worker *w, const char *name, size_t bytes, kr_value package)
{
    struct kr_vm *vm = w->vm;
    kr_value found;
    if (KRI_LIKELY(find_accessible(vm, kri_package_of(package), name, bytes, hash_name(name, bytes), &found)))
        return found;
    kr_value symbol = kri_make_symbol(w, kri_string_n(w, name, bytes));
    struct kri_symbol *s = (struct kri_symbol *)kri_ptr(symbol);
    s->homepkg = package;
    bool keyword = kri_eq(package, vm->pkg_keyword);
    if (keyword) {
        s->value = symbol;
        s->vtype = kri_fixnum(0);
    }
    return enter(w, symbol, package, keyword, true);
}

kr_value kri_keyword(struct kri_worker *w, const char *name) { return kri_intern(w, name, strlen(name), w->vm->pkg_keyword); }

kr_value kri_find_symbol(struct kri_worker *w, const char *name, size_t bytes, kr_value package, bool *external, bool *found)
{
    kr_value symbol = KRI_NIL, other;
    uint64_t h = hash_name(name, bytes);
    bool is_external = find_in(w->vm, kri_package_of(package), EXTERNAL, name, bytes, h, &symbol);
    if (is_external) /* a symbol that stands in the table of all under that name is the one */
        if (find_in(w->vm, kri_package_of(package), ALL, name, bytes, h, &other) && !kri_eq(other, symbol))
            is_external = false, symbol = other;
    bool is_found = is_external || find_accessible(w->vm, kri_package_of(package), name, bytes, h, &symbol);
    if (external)
        *external = is_external;
    if (found)
        *found = is_found;
    return is_found ? symbol : KRI_NIL;
}

kr_value kri_find_present(struct kri_worker *w, const char *name, size_t bytes, kr_value package, bool external_only, bool *found)
{
    kr_value symbol = KRI_NIL;
    *found = find_in(w->vm, kri_package_of(package), external_only ? EXTERNAL : ALL, name, bytes, hash_name(name, bytes), &symbol);
    return *found ? symbol : KRI_NIL;
}

bool kri_fboundp(struct kr_vm *vm, kr_value sym) { return !kri_eq(kri_symbol_function(vm, sym), vm->undefined); }

kr_value kri_name_string(struct kri_worker *w, kr_value designator)
{
    struct kr_vm *vm = w->vm;
    if (kri_is_symbol(designator))
        designator = kri_symbol_of(vm, designator)->pname;
    if (!kri_is_string(vm, designator))
        kri_error(w, KRI_E_NO_STRING, designator, NULL);
    return kri_string_n(w, (char *)kri_string_of(designator)->byte, kri_length(designator));
}

/* ---- property lists: alists ((key . value) ..) in slot PLIST of every propertied object ---- */

static kr_value *plist_of(struct kri_worker *w, kr_value object, struct kri_cell **cell)
{
    struct kr_vm *vm = w->vm;
    *cell = kri_cell(vm, object);
    if (!*cell || (!kri_is_symbol(object) && !kri_derivedp(vm, object, vm->classes[KRI_CLASS_PROPERTIED_OBJECT].object)))
        kri_error(w, KRI_E_NO_OBJECT, object, "%V has no property list", object);
    return &(*cell)->slot[0];
}

static kr_value property(struct kri_worker *w, kr_value plist, kr_value key)
{
    for (; kri_is_cons(plist); plist = kri_cdr(plist)) {
        kri_poll(w); /* a program can make it circular */
        kr_value pair = kri_car(plist);
        if (kri_is_cons(pair) && kri_eq(kri_car(pair), key))
            return pair;
    }
    return KRI_NIL;
}

kr_value kri_property(struct kri_worker *w, kr_value object, kr_value key)
{
    struct kri_cell *cell;
    return property(w, kri_slot(plist_of(w, object, &cell)), key);
}

kr_value kri_get(struct kri_worker *w, kr_value object, kr_value key) { return kri_cdr(kri_property(w, object, key)); }

void kri_putprop(struct kri_worker *w, kr_value object, kr_value value, kr_value key)
{
    struct kri_cell *cell;
    kr_value *slot = plist_of(w, object, &cell);
    for (;;) { /* lock-free: a new pair goes in front by compare-and-swap */
        kr_value plist = kri_slot(slot), pair = property(w, plist, key);
        if (!kri_is_nil(pair)) {
            kri_store(w, kri_ptr(pair), &kri_cons_of(pair)->cdr, value);
            return;
        }
        if (kri_store_cas(w, cell, slot, plist, kri_cons(w, kri_cons(w, key, value), plist)))
            return;
    }
}

/* ---- packages ---- */

kr_value kri_find_package(struct kri_worker *w, kr_value designator)
{
    struct kr_vm *vm = w->vm;
    if (kri_is_package(designator))
        return designator;
    if (kri_is_symbol(designator))
        designator = kri_symbol_of(vm, designator)->pname;
    if (!kri_is_string(vm, designator))
        kri_error(w, KRI_E_PACKAGE_NAME, designator, NULL);
    struct kri_string *name = kri_string_of(designator);
    for (kr_value l = kri_slot(&vm->packages); kri_is_cons(l); l = kri_cdr(l))
        for (kr_value n = kri_slot(&kri_package_of(kri_car(l))->names); kri_is_cons(n); n = kri_cdr(n)) {
            struct kri_string *s = kri_string_of(kri_car(n));
            if (s->head.length == name->head.length && memcmp(s->byte, name->byte, s->head.length) == 0)
                return kri_car(l);
        }
    return KRI_NIL;
}

kr_value kri_package_arg(struct kri_worker *w, kr_value designator)
{
    kr_value p = kri_find_package(w, designator);
    if (kri_is_nil(p))
        kri_error(w, KRI_E_NO_PACKAGE, designator, NULL);
    return p;
}

/* Put PAIR, a fresh cons whose cdr is free, before the list in *SLOT of CELL. */
static void push_locked(struct kri_worker *w, struct kri_cell *cell, kr_value *slot, kr_value pair)
{
    kri_cons_of(pair)->cdr = *slot;
    kri_store(w, cell, slot, pair);
}

/* The lists are walked without a lock: the package is left out of a new one. */
void kri_forget_package(struct kri_worker *w, kr_value package)
{
    struct kr_vm *vm = w->vm;
    for (;;) {
        kr_value old = kri_slot(&vm->packages), kept = KRI_NIL, list = KRI_NIL;
        for (kr_value l = old; kri_is_cons(l); l = kri_cdr(l))
            if (!kri_eq(kri_car(l), package))
                kept = kri_cons(w, kri_car(l), kept);
        for (; kri_is_cons(kept); kept = kri_cdr(kept))
            list = kri_cons(w, kri_car(kept), list);
        kri_lock(w, &vm->package_lock);
        bool same = kri_eq(vm->packages, old);
        if (same)
            kri_store_release((volatile kri_atomic *)&vm->packages.w, list.w);
        kri_unlock(&vm->package_lock);
        if (same)
            return;
    }
}

kr_value kri_make_package_list(struct kri_worker *w, kr_value names)
{
    struct kr_vm *vm = w->vm;
    struct kri_package *p = (struct kri_package *)kri_make(w, KRI_CLASS_PACKAGE, 0, 9);
    p->names = names;
    p->symcount = p->intsymcount = kri_fixnum(0);
    kr_value package = kri_value_of(p), table = make_table(w, FIRST_TABLE);
    kri_store(w, &p->head, &p->symvector, table);
    table = make_table(w, FIRST_TABLE);
    kri_store(w, &p->head, &p->intsymvector, table);
    kr_value pair = kri_cons(w, package, KRI_NIL);
    kri_lock(w, &vm->package_lock);
    kri_cons_of(pair)->cdr = vm->packages;
    kri_store_release((volatile kri_atomic *)&vm->packages.w, pair.w);
    kri_unlock(&vm->package_lock);
    return package;
}

kr_value kri_make_package(struct kri_worker *w, const char *const *names)
{
    size_t n = 0;
    kr_value list = KRI_NIL;
    while (names[n])
        n++;
    while (n-- > 0)
        list = kri_cons(w, kri_string(w, names[n]), list);
    return kri_make_package_list(w, list);
}

void kri_set_package_names(struct kri_worker *w, kr_value package, kr_value names)
{
    struct kri_package *p = kri_package_of(package);
    kri_store(w, &p->head, &p->names, names);
    names_changed(w);
}

static bool memq(kr_value x, kr_value list)
{
    for (; kri_is_cons(list); list = kri_cdr(list))
        if (kri_eq(kri_car(list), x))
            return true;
    return false;
}

/* A symbol that was only read so far: no value, function or properties. */
static bool is_pristine(struct kr_vm *vm, kr_value symbol)
{
    struct kri_symbol *s = kri_symbol_of(vm, symbol);
    return kri_eq(kri_slot(&s->value), KRI_UNBOUND) && kri_is_nil(kri_slot(&s->plist)) && !kri_fboundp(vm, symbol);
}

/* A package that uses PACKAGE may hold another symbol of this name. One that it exports is deliberate and goes on hiding the
 * new one; one that was merely read gives way; any other is a conflict. */
void kri_export(struct kri_worker *w, kr_value symbol, kr_value package)
{
    struct kr_vm *vm = w->vm;
    struct kri_string *s = pname(vm, symbol);
    uint64_t h = hash_name((char *)s->byte, s->head.length);
    for (kr_value l = kri_slot(&kri_package_of(package)->used_by); kri_is_cons(l); l = kri_cdr(l)) {
        struct kri_package *user = kri_package_of(kri_car(l));
        kr_value other, exported;
        if (!find_in(vm, user, ALL, (char *)s->byte, s->head.length, h, &other) || kri_eq(other, symbol) ||
            memq(other, kri_slot(&user->shadows)) || find_in(vm, user, EXTERNAL, (char *)s->byte, s->head.length, h, &exported))
            continue;
        if (!is_pristine(vm, other))
            kri_error(w, KRI_E_SYMBOL_CONFLICT, symbol, "%V in %V", symbol, kri_car(l));
        kri_unintern(w, other, kri_car(l));
    }
    enter(w, symbol, package, true, false);
    names_changed(w);
}

void kri_import(struct kri_worker *w, kr_value symbol, kr_value package)
{
    enter(w, symbol, package, false, false);
    struct kri_symbol *s = kri_symbol_of(w->vm, symbol);
    if (kri_is_nil(kri_slot(&s->homepkg)))
        kri_store(w, &s->head, &s->homepkg, package);
    names_changed(w);
}

/* Remove SYMBOL itself (not another of its name) from table T. */
static bool remove_locked(struct kri_worker *w, struct kri_package *p, enum table t, kr_value symbol)
{
    struct kri_string *s = pname(w->vm, symbol);
    kr_value vector = *table_slot(p, t);
    intptr_t i = place_of(w->vm, vector, (char *)s->byte, s->head.length, hash_name((char *)s->byte, s->head.length));
    if (i < 0 || !kri_eq(kri_vector_of(vector)->at[i], symbol))
        return false;
    kri_store(w, kri_ptr(vector), &kri_vector_of(vector)->at[i], REMOVED_PLACE);
    return true;
}

bool kri_unintern(struct kri_worker *w, kr_value symbol, kr_value package)
{
    struct kri_package *p = kri_package_of(package);
    struct kri_symbol *s = kri_symbol_of(w->vm, symbol);
    kri_lock(w, &w->vm->package_lock);
    bool was = remove_locked(w, p, ALL, symbol);
    was = remove_locked(w, p, EXTERNAL, symbol) || was;
    if (was && kri_eq(s->homepkg, package))
        kri_store(w, &s->head, &s->homepkg, KRI_NIL);
    kri_unlock(&w->vm->package_lock);
    names_changed(w);
    return was;
}

void kri_unexport(struct kri_worker *w, kr_value symbol, kr_value package)
{
    kri_lock(w, &w->vm->package_lock);
    remove_locked(w, kri_package_of(package), EXTERNAL, symbol);
    kri_unlock(&w->vm->package_lock);
    names_changed(w);
}

void kri_shadow(struct kri_worker *w, kr_value name, kr_value package)
{
    struct kri_package *p = kri_package_of(package);
    struct kri_string *s = kri_string_of(name);
    kr_value symbol;
    if (!find_in(w->vm, p, ALL, (char *)s->byte, s->head.length, hash_name((char *)s->byte, s->head.length), &symbol)) {
        symbol = kri_make_symbol(w, name);
        kri_store(w, kri_ptr(symbol), &((struct kri_symbol *)kri_ptr(symbol))->homepkg, package);
        enter(w, symbol, package, false, false);
    }
    for (kr_value l = kri_slot(&p->shadows); kri_is_cons(l); l = kri_cdr(l))
        if (kri_eq(kri_car(l), symbol))
            return;
    kr_value pair = kri_cons(w, symbol, KRI_NIL);
    kri_lock(w, &w->vm->package_lock);
    push_locked(w, &p->head, &p->shadows, pair);
    kri_unlock(&w->vm->package_lock);
    names_changed(w);
}

void kri_use_package(struct kri_worker *w, kr_value used, kr_value user)
{
    struct kr_vm *vm = w->vm;
    struct kri_package *p = kri_package_of(user), *q = kri_package_of(used);
    if (kri_eq(used, user) || memq(used, kri_slot(&p->use)))
        return;
    struct kri_vector *v = kri_vector_of(kri_slot(&q->symvector));
    for (size_t i = 0; i < v->head.length; i++) {
        kr_value e = kri_slot(&v->at[i]), other;
        if (kri_is_fixnum(e))
            continue;
        struct kri_string *s = pname(vm, e);
        if (find_in(vm, p, ALL, (char *)s->byte, s->head.length, hash_name((char *)s->byte, s->head.length), &other) &&
            !kri_eq(other, e) && !memq(other, kri_slot(&p->shadows)))
            kri_error(w, KRI_E_SYMBOL_CONFLICT, e, "%V in %V", e, user);
    }
    kr_value use = kri_cons(w, used, KRI_NIL), by = kri_cons(w, user, KRI_NIL);
    kri_lock(w, &vm->package_lock);
    if (!memq(used, p->use)) {
        push_locked(w, &p->head, &p->use, use);
        push_locked(w, &q->head, &q->used_by, by);
    }
    kri_unlock(&vm->package_lock);
    names_changed(w);
}

/* Take X out of the list in *SLOT of CELL: a copy without it replaces the list if that is still the same then. */
static void remove_from_list(struct kri_worker *w, struct kri_cell *cell, kr_value *slot, kr_value x)
{
    for (;;) {
        kr_value list = kri_slot(slot), copy = KRI_NIL, last = KRI_NIL;
        for (kr_value l = list; kri_is_cons(l); l = kri_cdr(l)) {
            if (kri_eq(kri_car(l), x))
                continue;
            kr_value pair = kri_cons(w, kri_car(l), KRI_NIL);
            if (kri_is_nil(last))
                copy = pair;
            else
                kri_store(w, kri_ptr(last), &kri_cons_of(last)->cdr, pair);
            last = pair;
        }
        kri_lock(w, &w->vm->package_lock);
        bool same = kri_eq(*slot, list);
        if (same)
            kri_store(w, cell, slot, copy);
        kri_unlock(&w->vm->package_lock);
        if (same)
            return;
    }
}

void kri_unuse_package(struct kri_worker *w, kr_value used, kr_value user)
{
    struct kri_package *p = kri_package_of(user), *q = kri_package_of(used);
    remove_from_list(w, &p->head, &p->use, used);
    remove_from_list(w, &q->head, &q->used_by, user);
    names_changed(w);
}

kr_value kri_package_symbols(struct kri_worker *w, kr_value package, bool external_only)
{
    kr_value vector = kri_slot(table_slot(kri_package_of(package), external_only ? EXTERNAL : ALL)), list = KRI_NIL;
    for (size_t i = kri_length(vector); i-- > 0;) {
        kr_value e = kri_slot(&kri_vector_of(vector)->at[i]);
        if (!kri_is_fixnum(e))
            list = kri_cons(w, e, list);
    }
    return list;
}

void kri_package_init_early(struct kr_vm *vm, struct kri_worker *w)
{
    static const char *const names[][4] = {{"LISP"}, {"SYSTEM", "SYS", "SI"}, {"UNIX"}, {"KEYWORD"}, {"COMPILER", "COMP"}, {"HELP"},
                                           {"GEOMETRY", "GEO"}, {"USER"}};
    enum { LISP, SYSTEM, UNIX, KEYWORD, COMPILER, HELP, GEOMETRY, USER, COUNT };
    kr_value p[COUNT];
    for (int i = 0; i < COUNT; i++)
        p[i] = kri_make_package(w, names[i]);
    vm->pkg_lisp = p[LISP];
    vm->pkg_system = p[SYSTEM];
    vm->pkg_unix = p[UNIX];
    vm->pkg_keyword = p[KEYWORD];
    vm->pkg_compiler = p[COMPILER];
    vm->pkg_user = p[USER];
    for (int i = SYSTEM; i < USER; i++)
        if (i != KEYWORD)
            kri_use_package(w, p[LISP], p[i]);
    /* COMPILER and GEOMETRY code names what SYSTEM exports only with a prefix; USER sees three packages. */
    kri_use_package(w, p[LISP], p[USER]);
    kri_use_package(w, p[GEOMETRY], p[USER]);
    kri_use_package(w, p[HELP], p[USER]);
    kri_store(w, kri_ptr(vm->nil_symbol), &((struct kri_symbol *)kri_ptr(vm->nil_symbol))->homepkg, vm->pkg_lisp);
    kri_export(w, KRI_NIL, vm->pkg_lisp);
}
