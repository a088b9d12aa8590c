/* reader.c -- from characters to forms.
 *
 * A readtable is a readtable object: SYNTAX a string of 256 enum syntax bytes; MACRO a vector of 256: NIL, a fixnum (a
 * macro of the standard syntax, enum native, called here without leaving C), a vector of 256 (the table of a dispatch
 * character), or a function of (stream char); DISPATCH-MACRO the table of #, the same vector as MACRO's entry.
 *
 * One struct reader lives through one call of read. It scans the stream's buffer in stretches under the stream's lock
 * (white space, a token, a string), so that a character costs no lock. While a macro function written in Lisp runs inside a
 * backquote or where #n= labels are known, the special *reader-state* carries these to the reads it makes. */
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include "lisp/address_table.h"
#include "lisp/number.h"
#include "lisp/reader_private.h"

/* ---- errors: with the place, where the stream is a file ---- */

_Noreturn void kri_reader_error(struct reader *r, int code, kr_value value, const char *text)
{
    struct kri_worker *w = r->w;
    struct kr_vm *vm = r->vm;
    kr_value name = KRI_NIL;
    if (kri_is_pointer(r->stream) && kri_derivedp(vm, r->stream, vm->classes[KRI_CLASS_FILE_STREAM].object))
        name = kri_slot(&((struct kri_stream_cell *)kri_ptr(r->stream))->fname);
    if (kri_is_string(vm, name))
        kri_error(w, code, value, "%s, line %u of %s", text, r->line, (const char *)kri_string_of(name)->byte);
    kri_error(w, code, value, "%s, line %u", text, r->line);
}

_Noreturn void kri_reader_end_error(struct reader *r, const char *within, unsigned line)
{
    if (line)
        r->line = line;
    kri_reader_error(r, KRI_E_EOF, r->stream, within);
}

_Noreturn void kri_reader_too_deep(struct reader *r)
{
    kri_reader_error(r, KRI_E_STACK, KRI_NIL, "a form nested too deeply");
}

void kri_reader_check_depth(struct reader *r)
{
    if (kri_native_exhausted(r->w))
        longjmp(r->shallow, 1); /* past frames of this file only, which hold nothing */
}

/* ---- characters ---- */

/* Lock the stream with an unread byte at hand; false, unlocked, at the end. */
bool kri_reader_fill(struct reader *r)
{
    if (KRI_LIKELY(!r->user))
        return kri_stream_lock_filled(r->w, r->stream, r->st);
    if (r->own.pos == r->own.end) {
        int c = kri_stream_getc(r->w, r->stream);
        if (c < 0)
            return false;
        r->own_bytes[KRI_STREAM_RESERVE] = (unsigned char)c;
        r->own.pos = KRI_STREAM_RESERVE;
        r->own.end = KRI_STREAM_RESERVE + 1;
    }
    return true;
}

static void unlock(struct reader *r)
{
    if (!r->user)
        kri_unlock(&r->st->lock);
}

/* Give a user-made stream back the byte that was read ahead. */
void kri_reader_sync_user(struct reader *r)
{
    if (r->user && r->own.pos < r->own.end) {
        r->own.pos = r->own.end;
        kri_stream_ungetc(r->w, r->stream, r->own_bytes[KRI_STREAM_RESERVE]);
    }
}

int kri_reader_get(struct reader *r)
{
    if (!kri_reader_fill(r))
        return -1;
    int c = r->st->bytes[r->st->pos++];
    r->st->line += c == '\n';
    unlock(r);
    return c;
}

int kri_reader_peek(struct reader *r)
{
    if (!kri_reader_fill(r))
        return -1;
    int c = r->st->bytes[r->st->pos];
    unlock(r);
    return c;
}

void kri_reader_unget(struct reader *r, int c)
{
    if (!r->user)
        kri_lock(r->w, &r->st->lock);
    r->st->bytes[--r->st->pos] = (unsigned char)c;
    r->st->line -= c == '\n';
    unlock(r);
}

static void skip_line(struct reader *r)
{
    while (kri_reader_fill(r)) {
        unsigned char *from = r->st->bytes + r->st->pos, *nl = memchr(from, '\n', r->st->end - r->st->pos);
        r->st->pos = nl ? r->st->pos + (size_t)(nl - from) + 1 : r->st->end;
        r->st->line += nl != NULL;
        unlock(r);
        if (nl)
            return;
    }
}

/* The next character that is not white space or in a semicolon comment, taken; -1 at the end. */
int kri_reader_skip_space(struct reader *r)
{
    for (;;) {
        int c = -1;
        if (!kri_reader_fill(r))
            return -1;
        struct kri_stream *st = r->st;
        while (st->pos < st->end) {
            c = st->bytes[st->pos++];
            if (r->syntax[c] != WHITE)
                break;
            st->line += c == '\n';
            c = -1;
        }
        r->line = (unsigned)st->line;
        unlock(r);
        if (c < 0)
            continue;
        if (r->syntax[c] == TERMINATING && kri_eq(r->macro->at[c], kri_fixnum(NATIVE_COMMENT)))
            skip_line(r);
        else
            return c;
    }
}

/* ---- tokens ---- */


static inline int convert_case(const struct reader *r, int c)
{
    if (KRI_LIKELY(kri_eq(r->letter_case, r->vm->sym.k_upcase)))
        return c >= 'a' && c <= 'z' ? c - 32 : c;
    if (kri_eq(r->letter_case, r->vm->sym.k_downcase))
        return c >= 'A' && c <= 'Z' ? c + 32 : c;
    return c;
}

static inline bool ends_infix(int c) { return c == '[' || c == ']' || c == '(' || c == ')'; }

/* Scan a token into r->text. INFIX: brackets end it too. */
void kri_reader_scan_token(struct reader *r, struct token *t, bool infix)
{
    enum { PLAIN, BARS, ESCAPE, BARS_ESCAPE } mode = PLAIN;
    struct kri_text *text = &r->text;
    bool done = false;
    text->n = 0;
    memset(t, 0, sizeof *t);
    while (!done) {
        if (text->n == text->cap)
            kri_text_reserve(r->w, text, 64);
        if (!kri_reader_fill(r)) {
            if (mode != PLAIN)
                kri_reader_end_error(r, "end of input in a symbol's name", 0);
            break;
        }
        struct kri_stream *st = r->st;
        while (st->pos < st->end && text->n < text->cap) {
            int c = st->bytes[st->pos], s = r->syntax[c];
            if (KRI_LIKELY(mode == PLAIN)) {
                if (KRI_LIKELY(s == CONSTITUENT || s == NONTERMINATING)) {
                    if (infix && ends_infix(c)) {
                        done = true;
                        break;
                    }
                    if (c == ':') {
                        bool runs_on = t->colons && t->colon + t->colons == text->n;
                        t->colon = runs_on ? t->colon : text->n;
                        t->colons = runs_on ? t->colons + 1 : 1;
                    }
                    text->p[text->n++] = (char)convert_case(r, c);
                } else if (s == SINGLE_ESCAPE) {
                    mode = ESCAPE;
                    t->escaped = true;
                } else if (s == MULTIPLE_ESCAPE) {
                    mode = BARS;
                    t->escaped = true;
                } else {
                    done = true;
                    break;
                }
            } else if (mode == BARS && s == MULTIPLE_ESCAPE) {
                mode = PLAIN;
            } else if (mode == BARS && s == SINGLE_ESCAPE) {
                mode = BARS_ESCAPE;
            } else {
                text->p[text->n++] = (char)c;
                mode = mode == ESCAPE ? PLAIN : mode == BARS_ESCAPE ? BARS : mode;
            }
            st->pos++;
            st->line += c == '\n';
        }
        unlock(r);
    }
}

/* Might TEXT be a number? A cheap test before the true one. */
static bool looks_numeric(const struct reader *r, const char *p, size_t n)
{
    if (*p >= '0' && *p <= '9')
        return true;
    if ((*p == '+' || *p == '-' || *p == '.') && n > 1)
        return (p[1] >= '0' && p[1] <= '9') || p[1] == '.' || r->base > 10;
    return r->base > 10 && ((*p >= 'A' && *p <= 'Z') || (*p >= 'a' && *p <= 'z'));
}

static kr_value parse_number(struct reader *r)
{
    const char *p = r->text.p;
    size_t n = r->text.n;
    if (n == 0 || !looks_numeric(r, p, n))
        return KRI_UNBOUND;
    kr_value v = kri_parse_number(r->w, p, n, r->base);
    if (kri_eq(v, KRI_UNBOUND) && n > 1 && p[n - 1] == '%') /* 5% is 5 */
        v = kri_parse_number(r->w, p, n - 1, r->base);
    return v;
}

static kr_value token_symbol(struct reader *r, const struct token *t)
{
    struct kri_worker *w = r->w;
    const char *p = r->text.p;
    size_t n = r->text.n;
    if (r->suppress)
        return KRI_NIL;
    if (KRI_LIKELY(t->colons == 0))
        return kri_intern(w, p, n, r->package);
    const char *name = p + t->colon + t->colons;
    size_t length = n - t->colon - t->colons;
    if (t->colon == 0)
        return kri_intern(w, name, length, r->vm->pkg_keyword);
    kr_value package = kri_find_package(w, kri_string_n(w, p, t->colon));
    if (kri_is_nil(package))
        kri_reader_error(r, KRI_E_NO_PACKAGE, kri_string_n(w, p, t->colon), "a qualified symbol");
    if (t->colons >= 2)
        return kri_intern(w, name, length, package);
    bool external, found;
    kr_value symbol = kri_find_symbol(w, name, length, package, &external, &found);
    if (!external)
        kri_reader_error(r, KRI_E_NO_EXTERNAL, kri_string_n(w, p, n), "a qualified symbol");
    return symbol;
}

/* What the N characters at P name of inf, -inf, nan, -nan; else 0. */
static double float_name(const char *p, size_t n)
{
    bool minus = n > 0 && p[0] == '-';
    p += minus;
    if (n - minus != 3)
        return 0;
    if (strncasecmp(p, "inf", 3) == 0)
        return minus ? -INFINITY : INFINITY;
    return strncasecmp(p, "nan", 3) == 0 ? NAN : 0;
}

kr_value kri_reader_token_object(struct reader *r, const struct token *t)
{
    if (!t->escaped && t->colons == 0) {
        if (r->text.n == 1 && r->text.p[0] == '.')
            return DOT;
        kr_value number = parse_number(r);
        if (!kri_eq(number, KRI_UNBOUND))
            return number;
        if (r->data) {
            double x = float_name(r->text.p, r->text.n);
            if (x != 0)
                return kri_float(r->w, x);
        }
    }
    return token_symbol(r, t);
}

static kr_value read_token(struct reader *r)
{
    struct token t;
    kri_reader_scan_token(r, &t, false);
    return kri_reader_token_object(r, &t);
}

kr_value kri_reader_dot_symbol(struct reader *r) { return kri_intern(r->w, ".", 1, r->package); }

/* ---- line numbers ---- */

struct kri_positions {
    struct kri_positions *prev;
    struct place {
        uintptr_t cons;
        unsigned line;
    } *at;
    size_t size, count;
    unsigned form_line;
    unsigned unclosed_line;  /* where a list began that the end of the file closed, or 0 */
    unsigned stray_line;     /* of a closing parenthesis without an open one before the form, or 0 */
    bool frozen;
    const kr_value *base;    /* the frame that loads, and the native one */
    const void *native;
};

void kri_positions_begin(struct kri_worker *w)
{
    struct kri_positions *p = calloc(1, sizeof *p);
    if (!p)
        kri_error_memory(w, sizeof *p);
    p->prev = w->ctx->positions;
    p->base = w->ctx->base;
    p->native = w->ctx->native;
    w->ctx->positions = p;
}

void kri_positions_end(struct kri_worker *w)
{
    struct kri_positions *p = w->ctx->positions;
    if (!p)
        return;
    w->ctx->positions = p->prev;
    free(p->at);
    free(p);
}

unsigned kri_positions_stray_line(struct kri_worker *w) { return w->ctx->positions ? w->ctx->positions->stray_line : 0; }
bool kri_positions_frame(struct kri_worker *w, const kr_value *base, const void *native)
{
    const struct kri_positions *p = w->ctx->positions;
    return p && p->base == base && p->native == native;
}
bool kri_positions_frozen(struct kri_worker *w) { return w->ctx->positions && w->ctx->positions->frozen; }
unsigned kri_positions_unclosed_line(struct kri_worker *w) { return w->ctx->positions ? w->ctx->positions->unclosed_line : 0; }

static struct place *position_place(struct place *at, size_t size, uintptr_t cons)
{
    size_t i = ((uint64_t)cons * 0x9e3779b97f4a7c15u) >> 32 & (size - 1);
    while (at[i].cons && at[i].cons != cons)
        i = (i + 1) & (size - 1);
    return &at[i];
}

/* Losing a line number when memory is out is no error. */
static void note_position(struct reader *r, kr_value cons, unsigned line)
{
    struct kri_positions *p = r->w->ctx->positions;
    if (!p || p->frozen)
        return;
    if ((p->count + 1) * 2 > p->size) {
        size_t size = p->size ? p->size * 2 : 32;
        struct place *at = calloc(size, sizeof *at);
        if (!at)
            return;
        for (size_t i = 0; i < p->size; i++)
            if (p->at[i].cons)
                *position_place(at, size, p->at[i].cons) = p->at[i];
        free(p->at);
        p->at = at;
        p->size = size;
    }
    struct place *e = position_place(p->at, p->size, cons.w);
    p->count += e->cons == 0;
    *e = (struct place){cons.w, line};
}

unsigned kri_position_line(struct kri_worker *w, kr_value cons)
{
    struct kri_positions *p = w->ctx->positions;
    if (!p || !p->size || !kri_is_pointer(cons))
        return 0;
    struct place *e = position_place(p->at, p->size, cons.w);
    return e->cons ? e->line : 0;
}

void kri_positions_freeze(struct kri_worker *w)
{
    if (w->ctx->positions)
        w->ctx->positions->frozen = true;
}

unsigned kri_positions_form_line(struct kri_worker *w) { return w->ctx->positions ? w->ctx->positions->form_line : 0; }

/* ---- lists ---- */

kr_value kri_reader_list(struct reader *r, int close)
{
    struct kri_worker *w = r->w;
    kr_value head = KRI_NIL, tail = KRI_NIL;
    unsigned line = r->line;
    for (;;) {
        int c = kri_reader_skip_space(r);
        if (c < 0) {
            if (w->ctx->positions)
                w->ctx->positions->unclosed_line = line; /* of the outermost list in the end */
            break;
        }
        if (c == close)
            break;
        kr_value v = kri_reader_item(r, c);
        if (kri_eq(v, NO_ITEM))
            continue;
        if (kri_eq(v, CLOSE))
            kri_reader_error(r, KRI_E_ILLEGAL_DELIMITER, kri_fixnum(c), "in a list");
        if (kri_eq(v, DOT)) {
            v = kri_reader_object(r);
            do
                c = kri_reader_skip_space(r);
            while (c >= 0 && c != close && kri_eq(kri_reader_item(r, c), NO_ITEM));
            if (c != close && c >= 0)
                kri_reader_error(r, KRI_E_ILLEGAL_DELIMITER, v, "more than one object after a dot");
            if (kri_is_nil(tail))
                head = v;
            else
                kri_store(w, kri_ptr(tail), &kri_cons_of(tail)->cdr, v);
            break;
        }
        kr_value pair = kri_cons(w, v, KRI_NIL);
        if (kri_is_nil(tail)) {
            head = pair;
            note_position(r, pair, line);
        } else {
            kri_store(w, kri_ptr(tail), &kri_cons_of(tail)->cdr, pair);
        }
        tail = pair;
    }
    return head;
}

static kr_value read_string(struct reader *r, int delimiter)
{
    struct kri_text *text = &r->text;
    bool escape = false, done = false;
    text->n = 0;
    while (!done) {
        if (text->n == text->cap)
            kri_text_reserve(r->w, text, text->cap);
        if (!kri_reader_fill(r))
            break;
        struct kri_stream *st = r->st;
        while (st->pos < st->end && text->n < text->cap) {
            int c = st->bytes[st->pos++];
            st->line += c == '\n';
            if (escape)
                escape = false;
            else if (c == delimiter) {
                done = true;
                break;
            } else if (r->syntax[c] == SINGLE_ESCAPE) {
                escape = true;
                continue;
            }
            text->p[text->n++] = (char)c;
        }
        unlock(r);
    }
    return kri_text_string(r->w, text);
}

/* ---- backquote ---- */

static kr_value make_marker(struct reader *r, enum marker kind, kr_value x)
{
    struct kri_cell *c = kri_make(r->w, KRI_CLASS_RECORD, 3, 3);
    c->slot[0] = kri_fixnum(kind);
    c->slot[1] = x;
    return kri_value_of(c);
}

static bool is_marker(kr_value v, enum marker kind)
{
    return kri_has_class(v, KRI_CLASS_RECORD) && kri_eq(kri_ptr(v)->slot[0], kri_fixnum(kind));
}
static kr_value marked(kr_value v) { return kri_slot(&kri_ptr(v)->slot[1]); }

static kr_value read_comma(struct reader *r)
{
    if (r->backquote == 0 && !r->suppress)
        kri_reader_error(r, KRI_E_ILLEGAL_CHARACTER, kri_fixnum(','), "a comma outside backquote");
    bool splice = kri_reader_peek(r) == '@';
    if (splice)
        kri_reader_get(r);
    r->backquote--;
    kr_value x = kri_reader_object(r);
    r->backquote++;
    return make_marker(r, splice ? MARK_SPLICE : MARK_COMMA, x);
}

static bool vector_has_markers(kr_value v)
{
    for (size_t i = 0; i < kri_length(v); i++) {
        kr_value e = kri_slot(&kri_vector_of(v)->at[i]);
        if (is_marker(e, MARK_COMMA) || is_marker(e, MARK_SPLICE) || (kri_is_cons(e) && !kri_is_nil(e)))
            return true;
    }
    return false;
}

/* `(a ,b ,@c . d) => (cons 'a (cons b (append c 'd))): folded from the end, so that long lists need no stack. */
static kr_value expand_backquote(struct reader *r, kr_value x)
{
    struct kri_worker *w = r->w;
    const struct kri_symbols *sym = &r->vm->sym;
    kri_reader_check_depth(r);
    kri_poll(w); /* nested backquotes grow exponentially */
    if (is_marker(x, MARK_COMMA))
        return marked(x);
    if (is_marker(x, MARK_SPLICE))
        kri_reader_error(r, KRI_E_ILLEGAL_CHARACTER, kri_fixnum('@'), ",@ outside a list");
    if (kri_has_class(x, KRI_CLASS_VECTOR) && vector_has_markers(x)) {
        kr_value list = KRI_NIL;
        for (size_t i = kri_length(x); i-- > 0;)
            list = kri_cons(w, kri_slot(&kri_vector_of(x)->at[i]), list);
        return kri_list(w, 3, kri_intern(w, "APPLY", 5, r->vm->pkg_lisp),
                        kri_list(w, 2, sym->function, kri_intern(w, "VECTOR", 6, r->vm->pkg_lisp)), expand_backquote(r, list));
    }
    if (!kri_is_cons(x))
        return kri_list(w, 2, sym->quote, x);
    kr_value reversed = KRI_NIL;
    for (; kri_is_cons(x); x = kri_cdr(x))
        reversed = kri_cons(w, kri_car(x), reversed);
    bool ends = kri_is_nil(x); /* nothing behind the last element yet */
    kr_value tail = ends ? KRI_NIL : expand_backquote(r, x);
    for (; kri_is_cons(reversed); reversed = kri_cdr(reversed)) {
        kr_value e = kri_car(reversed);
        if (is_marker(e, MARK_SPLICE))
            tail = kri_list(w, 3, sym->append, marked(e), tail);
        else if (ends)
            tail = kri_list(w, 2, sym->list, expand_backquote(r, e));
        else
            tail = kri_list(w, 3, sym->cons, expand_backquote(r, e), tail);
        ends = false;
    }
    return tail;
}

/* ---- labels ---- */

static kr_value find_label(struct reader *r, int n)
{
    for (kr_value l = r->labels; kri_is_cons(l); l = kri_cdr(l))
        if (kri_eq(kri_car(kri_car(l)), kri_fixnum(n)))
            return kri_car(l);
    return KRI_NIL;
}

static kr_value read_label(struct reader *r, int n)
{
    struct kri_worker *w = r->w;
    if (n < 0 || !kri_is_nil(find_label(r, n)))
        kri_reader_error(r, KRI_E_READ_LABEL, kri_fixnum(n), "a label");
    kr_value marker = make_marker(r, MARK_LABEL, KRI_UNBOUND), entry = kri_cons(w, kri_fixnum(n), marker);
    r->labels = kri_cons(w, entry, r->labels);
    kr_value v = kri_reader_object(r);
    if (kri_eq(v, marker))
        kri_reader_error(r, KRI_E_READ_LABEL, kri_fixnum(n), "a label of itself");
    kri_store(w, kri_ptr(marker), &kri_ptr(marker)->slot[1], v);
    kri_store(w, kri_ptr(entry), &kri_cons_of(entry)->cdr, v);
    return v;
}

static kr_value read_reference(struct reader *r, int n)
{
    kr_value entry = n < 0 ? KRI_NIL : find_label(r, n);
    if (r->suppress)
        return KRI_NIL;
    if (kri_is_nil(entry))
        kri_reader_error(r, KRI_E_READ_LABEL, kri_fixnum(n), "a reference to no label");
    kr_value v = kri_cdr(entry);
    if (is_marker(v, MARK_LABEL))
        r->unresolved = true;
    return v;
}

/* Put the labelled objects in the place of the markers that stood for them, throughout what was read. */
static kr_value resolve_labels(struct reader *r, kr_value root)
{
    struct kri_worker *w = r->w;
    struct kri_address_table seen = {0};
    kr_value todo = kri_cons(w, root, KRI_NIL);
    while (kri_is_cons(todo)) {
        kr_value v = kri_car(todo);
        todo = kri_cdr(todo);
        kr_value *slot;
        size_t n;
        if (!kri_is_pointer(v) || kri_is_symbol(v))
            continue;
        struct kri_cell *c = kri_ptr(v);
        enum kri_element element = kri_element(r->vm, v);
        if (element == KRI_ELEMENT_T) {
            slot = c->slot;
            n = c->length;
        } else if (element == KRI_ELEMENT_NONE && (kri_is_cons(v) || c->cls == KRI_CLASS_ARRAY || c->cls >= KRI_CLASS_BUILTIN_COUNT)) {
            slot = c->slot;
            n = r->vm->classes[c->cls].slots;
        } else {
            continue;
        }
        struct kri_address_entry *e = kri_address_enter(w, &seen, v);
        if (e->number++)
            continue;
        for (size_t i = 0; i < n; i++) {
            kr_value x = kri_slot(&slot[i]);
            if (is_marker(x, MARK_LABEL)) {
                while (is_marker(x, MARK_LABEL)) /* #1=#2=x chains are one step; a marker never names itself */
                    x = marked(x);
                kri_store(w, c, &slot[i], x);
            }
            if (kri_is_pointer(x))
                todo = kri_cons(w, x, todo);
        }
    }
    return root;
}

/* ---- macros ---- */

kr_value kri_reader_native(struct reader *r, enum native n, int c, int number)
{
    struct kri_worker *w = r->w;
    switch (n) {
    case NATIVE_LIST: return kri_reader_list(r, ')');
    case NATIVE_CLOSE: return CLOSE;
    case NATIVE_SUBSCRIPTS: return kri_cons(r->w, r->vm->sym.aref, kri_reader_list(r, ']'));
    case NATIVE_END_SUBSCRIPTS: return NO_ITEM;
    case NATIVE_QUOTE: {
        unsigned line = r->line;
        kr_value form = kri_list(w, 2, r->vm->sym.quote, kri_reader_object(r));
        note_position(r, form, line);
        return form;
    }
    case NATIVE_FUNCTION: {
        unsigned line = r->line;
        kr_value form = kri_list(w, 2, r->vm->sym.function, kri_reader_object(r));
        note_position(r, form, line);
        return form;
    }
    case NATIVE_STRING: return read_string(r, c);
    case NATIVE_COMMENT:
    case NATIVE_LINE_COMMENT: skip_line(r); return NO_ITEM;
    case NATIVE_BACKQUOTE: {
        unsigned line = r->line;
        r->backquote++;
        kr_value x = kri_reader_object(r);
        r->backquote--;
        if (r->suppress || kri_is_nil(x))
            return KRI_NIL;
        x = expand_backquote(r, x);
        if (kri_is_cons(x))
            note_position(r, x, line);
        return x;
    }
    case NATIVE_COMMA: return read_comma(r);
    case NATIVE_INFIX:
        if (kri_reader_peek(r) != '(') {
            kri_reader_unget(r, c);
            return read_token(r);
        }
        kri_reader_get(r);
        return kri_read_infix(r);
    case NATIVE_VECTOR: return kri_read_vector(r, number);
    case NATIVE_ARRAY: return kri_read_array(r, number, KRI_ELEMENT_T);
    case NATIVE_FLOAT_ARRAY: return kri_read_array(r, number, KRI_ELEMENT_FLOAT);
    case NATIVE_INTEGER_ARRAY: return kri_read_array(r, number, KRI_ELEMENT_INTEGER);
    case NATIVE_BITS: return kri_read_bits(r);
    case NATIVE_BINARY: return kri_read_based(r, 2);
    case NATIVE_OCTAL: return kri_read_based(r, 8);
    case NATIVE_HEX: return kri_read_based(r, 16);
    case NATIVE_DEGREES: return kri_read_angle(r, M_PI / 180);
    case NATIVE_RADIANS: return kri_read_angle(r, 180 / M_PI);
    case NATIVE_PATHNAME: {
        kr_value s = kri_reader_object(r);
        if (r->suppress)
            return KRI_NIL;
        if (!kri_is_string(r->vm, s))
            kri_reader_error(r, KRI_E_NO_STRING, s, "a pathname");
        return kri_parse_namestring(w, (char *)kri_string_of(s)->byte, kri_length(s));
    }
    case NATIVE_COMPLEX: {
        kr_value parts = kri_reader_object(r), real = kri_is_cons(parts) ? kri_car(parts) : KRI_NIL;
        kr_value imaginary = kri_is_cons(parts) && kri_is_cons(kri_cdr(parts)) ? kri_car(kri_cdr(parts)) : KRI_NIL;
        if (r->suppress)
            return KRI_NIL;
        if (!kri_is_number(real) || !kri_is_number(imaginary) || kri_has_class(real, KRI_CLASS_COMPLEX) || kri_has_class(imaginary, KRI_CLASS_COMPLEX))
            kri_reader_error(r, KRI_E_NO_NUMBER, parts, "#c(real imaginary)");
        return kri_make_complex(w, real, imaginary);
    }
    case NATIVE_EVAL:
    case NATIVE_EVAL2: return kri_read_eval(r);
    case NATIVE_UNINTERNED: {
        struct token t;
        kri_reader_scan_token(r, &t, false);
        return r->suppress ? KRI_NIL : kri_make_symbol(w, kri_text_string(w, &r->text));
    }
    case NATIVE_LABEL: return read_label(r, number);
    case NATIVE_REFERENCE: return read_reference(r, number);
    case NATIVE_BLOCK_COMMENT: kri_skip_block_comment(r); return NO_ITEM;
    case NATIVE_FEATURE: return kri_read_feature(r, true);
    case NATIVE_NO_FEATURE: return kri_read_feature(r, false);
    case NATIVE_STRUCTURE: return kri_read_instance(r, true);
    case NATIVE_OBJECT:
    case NATIVE_OBJECT2: return kri_read_instance(r, false);
    case NATIVE_LIVE: return kri_read_live(r);
    case NATIVE_CHARACTER: return kri_read_character(r);
    default: kri_reader_error(r, KRI_E_SHARP_MACRO, kri_fixnum(c), "no such macro");
    }
}

/* A macro function in Lisp. Backquote depth and labels reach the reads that it makes through *reader-state*. */
enum { STATE_STREAM, STATE_BACKQUOTE, STATE_LABELS, STATE_UNRESOLVED, STATE_WORDS };
struct macro_call {
    kr_value fn, argv[3];
    int argc;
};

static kr_value call_macro(struct kri_worker *w, void *arg)
{
    struct macro_call *call = arg;
    return kri_call(w, call->fn, call->argc, call->argv);
}

static kr_value user_macro(struct reader *r, kr_value fn, int c, int argc, int number)
{
    struct kri_worker *w = r->w;
    struct macro_call call = {.fn = kri_coerce_function(w, fn), .argc = argc};
    kr_value v;
    call.argv[0] = r->stream;
    call.argv[1] = kri_fixnum(c);
    call.argv[2] = kri_fixnum(number < 0 ? 0 : number);
    kri_reader_sync_user(r);
    if (r->backquote == 0 && kri_is_nil(r->labels)) {
        v = call_macro(w, &call);
    } else {
        struct kri_cell *state = kri_make(w, KRI_CLASS_RECORD, STATE_WORDS, STATE_WORDS);
        state->slot[STATE_STREAM] = r->stream;
        state->slot[STATE_BACKQUOTE] = kri_fixnum(r->backquote);
        state->slot[STATE_LABELS] = r->labels;
        state->slot[STATE_UNRESOLVED] = kri_bool(w, r->unresolved);
        v = kri_with_binding(w, r->vm->sym.reader_state, kri_value_of(state), call_macro, &call);
        r->labels = kri_slot(&state->slot[STATE_LABELS]);
        r->unresolved = !kri_is_nil(kri_slot(&state->slot[STATE_UNRESOLVED]));
    }
    kri_reader_load_readtable(r);
    return v;
}

kr_value kri_reader_dispatch(struct reader *r, kr_value table)
{
    intptr_t number = -1;
    int c;
    for (; (c = kri_reader_get(r)) >= '0' && c <= '9'; number = number > 100000000 ? number : (number < 0 ? 0 : number * 10) + c - '0') {
    }
    if (c < 0)
        return NO_ITEM;
    if (number > INT_MAX)
        kri_reader_error(r, KRI_E_SHARP_MACRO, kri_integer(r->w, number), "a number too large");
    int upper = c >= 'a' && c <= 'z' ? c - 32 : c;
    kr_value m = kri_slot(&kri_vector_of(table)->at[upper]);
    if (kri_is_fixnum(m))
        return kri_reader_native(r, (enum native)kri_fixnum_value(m), upper, (int)number);
    if (kri_is_nil(m)) {
        if (r->suppress)
            return KRI_NIL;
        char text[2] = {(char)c, 0};
        kri_reader_error(r, KRI_E_SHARP_MACRO, kri_string_n(r->w, text, 1), "no # macro defined");
    }
    return r->suppress ? kri_reader_object(r) : user_macro(r, m, upper, 3, (int)number);
}

/* The item that begins with C (taken, not white space): an object, or NO_ITEM, DOT, CLOSE. */
kr_value kri_reader_item(struct reader *r, int c)
{
    kri_reader_check_depth(r);
    enum syntax s = (enum syntax)r->syntax[c];
    if (s == CONSTITUENT || s == SINGLE_ESCAPE || s == MULTIPLE_ESCAPE) {
        kri_reader_unget(r, c);
        return read_token(r);
    }
    if (s == ILLEGAL)
        kri_reader_error(r, KRI_E_ILLEGAL_CHARACTER, kri_fixnum(c), "a control character");
    kr_value m = kri_slot(&r->macro->at[c]);
    if (kri_is_fixnum(m))
        return kri_reader_native(r, (enum native)kri_fixnum_value(m), c, -1);
    if (kri_has_class(m, KRI_CLASS_VECTOR))
        return kri_reader_dispatch(r, m);
    if (kri_is_nil(m)) {
        kri_reader_unget(r, c);
        struct token t;
        kri_reader_scan_token(r, &t, false);
        if (r->text.n == 0 && !t.escaped) { /* a terminating character without a macro stands for itself */
            kri_reader_get(r);
            char text = (char)c;
            return kri_intern(r->w, &text, 1, r->package);
        }
        return kri_reader_token_object(r, &t);
    }
    return user_macro(r, m, c, 2, 0);
}

/* The next object, wherever one must come. */
kr_value kri_reader_object(struct reader *r)
{
    for (;;) {
        int c = kri_reader_skip_space(r);
        if (c < 0)
            kri_reader_end_error(r, "end of input where an object was expected", 0);
        kr_value v = kri_reader_item(r, c);
        if (kri_eq(v, NO_ITEM))
            continue;
        if (kri_eq(v, CLOSE))
            kri_reader_error(r, KRI_E_ILLEGAL_DELIMITER, kri_fixnum(c), "an object expected");
        return kri_eq(v, DOT) ? kri_reader_dot_symbol(r) : v;
    }
}

/* ---- entries ---- */

void kri_reader_load_readtable(struct reader *r)
{
    struct kri_worker *w = r->w;
    r->readtable = kri_special(w, r->vm->sym.readtable);
    struct kri_readtable *t = kri_readtable_of(w, r->readtable);
    r->syntax = kri_string_of(t->syntax)->byte;
    if (r->delimiter >= 0) {
        memcpy(r->own_syntax, r->syntax, sizeof r->own_syntax);
        r->own_syntax[r->delimiter] = TERMINATING;
        r->syntax = r->own_syntax;
    }
    r->macro = kri_vector_of(t->macro);
    r->letter_case = t->readcase;
    r->package = kri_special(w, r->vm->sym.package);
    if (!kri_is_package(r->package))
        kri_error(w, KRI_E_NO_PACKAGE, r->package, "the value of *package*");
}

void kri_reader_setup(struct reader *r, struct kri_worker *w, kr_value stream, int delimiter)
{
    struct kr_vm *vm = w->vm;
    r->w = w;
    r->delimiter = delimiter;
    r->vm = vm;
    r->stream = kri_input_stream(w, stream);
    r->st = kri_stream_state(vm, r->stream);
    r->user = r->st == NULL;
    r->backquote = 0;
    r->labels = r->state = KRI_NIL;
    r->unresolved = r->suppress = r->data = false;
    r->line = 0;
    if (r->user) {
        memset(&r->own, 0, sizeof r->own);
        r->own.bytes = r->own_bytes;
        r->own.pos = r->own.end = KRI_STREAM_RESERVE;
        r->own.line = 1;
        r->st = &r->own;
    }
    kr_value base = kri_special(w, vm->sym.read_base);
    r->base = kri_is_fixnum(base) && kri_fixnum_value(base) >= 2 && kri_fixnum_value(base) <= 36 ? (int)kri_fixnum_value(base) : 10;
    kri_text_init(&r->text);
    kri_reader_load_readtable(r);
    kr_value state = kri_special(w, vm->sym.reader_state);
    if (kri_has_class(state, KRI_CLASS_RECORD) && kri_eq(kri_ptr(state)->slot[STATE_STREAM], r->stream)) {
        r->state = state;
        r->backquote = (int)kri_fixnum_value(kri_ptr(state)->slot[STATE_BACKQUOTE]);
        r->labels = kri_slot(&kri_ptr(state)->slot[STATE_LABELS]);
        r->unresolved = !kri_is_nil(kri_slot(&kri_ptr(state)->slot[STATE_UNRESOLVED]));
    }
}

/* The end of a read that gave V: labels are resolved by the outermost one. */
kr_value kri_reader_finish(struct reader *r, kr_value v)
{
    kri_reader_sync_user(r);
    if (!kri_is_nil(r->state)) {
        struct kri_cell *c = kri_ptr(r->state);
        kri_store(r->w, c, &c->slot[STATE_LABELS], r->labels);
        kri_store(r->w, c, &c->slot[STATE_UNRESOLVED], kri_bool(r->w, r->unresolved));
        return v;
    }
    return r->unresolved ? resolve_labels(r, v) : v;
}

static kr_value read_one(struct kri_worker *w, kr_value stream, bool eof_error, kr_value eof_value, bool data)
{
    struct reader r;
    kri_reader_setup(&r, w, stream, -1);
    r.data = data;
    if (setjmp(r.shallow))
        kri_reader_too_deep(&r);
    for (;;) {
        int c = kri_reader_skip_space(&r);
        if (c < 0) {
            if (eof_error)
                kri_error(w, KRI_E_EOF, r.stream, NULL);
            kri_reader_sync_user(&r);
            return eof_value;
        }
        if (w->ctx->positions && w->ctx->positions->form_line == 0)
            w->ctx->positions->form_line = r.line;
        kr_value v = kri_reader_item(&r, c);
        if (kri_eq(v, CLOSE)) { /* a stray parenthesis */
            struct kri_positions *p = w->ctx->positions;
            if (p && !p->frozen) {
                p->stray_line = r.line;
                p->form_line = 0;
            }
            continue;
        }
        if (kri_eq(v, NO_ITEM))
            v = KRI_NIL;
        else if (kri_eq(v, DOT))
            v = kri_reader_dot_symbol(&r);
        return kri_reader_finish(&r, v);
    }
}

kr_value kri_read(struct kri_worker *w, kr_value stream, bool eof_error, kr_value eof_value) { return read_one(w, stream, eof_error, eof_value, false); }

kr_value kri_read_data(struct kri_worker *w, kr_value stream, bool eof_error, kr_value eof_value)
{
    const struct kri_positions *p = w->ctx->positions; /* a reader macro of a file that is being loaded reads source */
    return read_one(w, stream, eof_error, eof_value, !p || p->frozen);
}

kr_value kri_read_recursive(struct kri_worker *w, kr_value stream, bool eof_error, kr_value eof_value)
{
    return kri_read(w, stream, eof_error, eof_value);
}

kr_value kri_read_delimited(struct kri_worker *w, kr_value stream, int delimiter)
{
    struct reader r;
    kri_reader_setup(&r, w, stream, delimiter);
    if (setjmp(r.shallow))
        kri_reader_too_deep(&r);
    if (r.st)
        r.line = (unsigned)kri_stream_line(w, r.stream);
    return kri_reader_finish(&r, kri_reader_list(&r, delimiter));
}

kr_value kri_read_from_string(struct kri_worker *w, kr_value string)
{
    return kri_read(w, kri_make_string_input(w, (char *)kri_string_of(string)->byte, kri_length(string)), true, KRI_NIL);
}
