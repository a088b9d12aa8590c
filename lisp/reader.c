/* reader.c -- from characters to forms.
 *
 * A readtable is a readtable object: SYNTAX a string of 256 enum syntax bytes; MACRO a vector of 256: NIL, a fixnum (a
 * macro of the standard syntax, enum native, called here without leaving C), a vector of 256 (the table of a dispatch
 * character), or a function of (stream char); DISPATCH-MACRO the table of #, the same vector as MACRO's entry.
 *
 * One struct reader lives through one call of read. It scans the stream's buffer in stretches under the stream's lock
 * (white space, a token, a string), so that a character costs no lock. While a macro function written in Lisp runs inside a
 * backquote or where #n= labels are known, the special *reader-state* carries these to the reads it makes. */
#include "lisp/reader.h"
#include <limits.h>
#include <math.h>
#include <setjmp.h>
#include <stdlib.h>
#include "lisp/address_table.h"
#include "lisp/number.h"
#include "lisp/package.h"

enum syntax { CONSTITUENT, WHITE, TERMINATING, NONTERMINATING, SINGLE_ESCAPE, MULTIPLE_ESCAPE, ILLEGAL };

/* The standard macros: NATIVE(enumerator, character, dispatched, "lisp name", "what it reads"). */
#define NATIVES                                                                                                         \
    NATIVE(LIST, '(', 0, "lisp::read-list", "a list up to the closing parenthesis")                                     \
    NATIVE(CLOSE, ')', 0, "lisp::read-close", "nothing: a closing parenthesis without an open one is skipped")          \
    NATIVE(QUOTE, '\'', 0, "lisp::read-quote", "'form as (quote form)")                                                 \
    NATIVE(STRING, '"', 0, "lisp::read-string", "a string; a backslash keeps the next character")                       \
    NATIVE(COMMENT, ';', 0, "lisp::read-comment", "a comment up to the end of the line")                                \
    NATIVE(BACKQUOTE, '`', 0, "lisp::read-backquote", "`form, expanded to list, cons and append forms")                 \
    NATIVE(COMMA, ',', 0, "lisp::read-comma", ",form and ,@form within a backquote")                                    \
    NATIVE(SHARP, '#', 0, "lisp::read-sharp", "an object of # syntax")                                                  \
    NATIVE(INFIX, '%', 0, "lisp::infix2prefix", "%(a + b) as (+ a b)")                                                  \
    NATIVE(FUNCTION, '\'', 1, "lisp::read-function", "#'name as (function name)")                                       \
    NATIVE(VECTOR, '(', 1, "lisp::read-vector", "#(a b), or #n(a b) of length n")                                       \
    NATIVE(ARRAY, 'A', 1, "read-array", "#na, an array of rank n")                                                      \
    NATIVE(FLOAT_ARRAY, 'F', 1, "read-float-array", "#f(..), a float-vector, or #nf, a float array of rank n")          \
    NATIVE(INTEGER_ARRAY, 'I', 1, "read-integer-array", "#i(..), an integer-vector, or #ni, an integer array")          \
    NATIVE(BITS, '*', 1, "read-bit-vector", "#*101, a bit-vector")                                                      \
    NATIVE(BINARY, 'B', 1, "read-binary", "#b101, a binary integer")                                                    \
    NATIVE(OCTAL, 'O', 1, "lisp::read-octal", "#o17, an octal integer")                                                 \
    NATIVE(HEX, 'X', 1, "lisp::read-hex", "#xff, a hexadecimal integer")                                                \
    NATIVE(DEGREES, 'D', 1, "read-degree", "#d90, a number of degrees, as radians")                                     \
    NATIVE(RADIANS, 'R', 1, "read-radian", "#r1.57, a number of radians, as degrees")                                   \
    NATIVE(PATHNAME, 'P', 1, "lisp::read-pathname", "#p\"..\", a pathname")                                             \
    NATIVE(COMPLEX, 'C', 1, "lisp::read-complex", "#c(real imaginary), a complex number")                                \
    NATIVE(EVAL, '.', 1, "lisp::read-eval", "#.form, the value of form at read time")                                   \
    NATIVE(EVAL2, ',', 1, "lisp::read-eval-comma", "#,form, the value of form at read time")                            \
    NATIVE(UNINTERNED, ':', 1, "lisp::read-uninterned", "#:name, a symbol in no package")                               \
    NATIVE(LABEL, '=', 1, "lisp::read-label", "#n=object, labelled for #n#")                                            \
    NATIVE(REFERENCE, '#', 1, "lisp::read-label-reference", "#n#, the object labelled #n=")                             \
    NATIVE(BLOCK_COMMENT, '|', 1, "lisp::read-block-comment", "#| a comment, which may contain others |#")              \
    NATIVE(LINE_COMMENT, '!', 1, "lisp::read-script-line", "#! a comment up to the end of the line")                    \
    NATIVE(FEATURE, '+', 1, "lisp::read-feature", "#+feature form, read if *features* has it")                          \
    NATIVE(NO_FEATURE, '-', 1, "lisp::read-without-feature", "#-feature form, read unless *features* has it")           \
    NATIVE(STRUCTURE, 'S', 1, "lisp::read-structure", "#s(class slot value ..), an instance")                           \
    NATIVE(OBJECT, 'J', 1, "lisp::read-object", "#j(class value ..), an instance, its slots by position")               \
    NATIVE(OBJECT2, 'V', 1, "lisp::read-instance", "#v(class value ..), an instance, its slots by position")            \
    NATIVE(LIVE, '<', 1, "lisp::read-live-object", "#<class #Xaddress ..>, the live object at that address")            \
    NATIVE(CHARACTER, '\\', 1, "lisp::read_sharp_backslash", "#\\a, a character's code")

enum native {
    NATIVE_NONE,
#define NATIVE(e, c, dispatched, name, doc) NATIVE_##e,
    NATIVES
#undef NATIVE
    NATIVE_COUNT
};
static const struct {
    unsigned char c;
    bool dispatched;
    const char *name;
} natives[] = {
    {0, false, NULL},
#define NATIVE(e, c, dispatched, name, doc) {c, dispatched, name},
    NATIVES
#undef NATIVE
};

/* What reading an item may yield besides an object. */
#define NOTHING KRI_UNBOUND
#define DOT KRI_ABSENT
#define CLOSE KRI_IMMEDIATE(KRI_IMM_DELETED)
#define AT_END KRI_IMMEDIATE(KRI_IMM_EOF)

/* Markers inside forms being read are %record cells: [0] the kind, [1] the expression, or a label's number and value. */
enum marker { MARK_COMMA = 1, MARK_SPLICE, MARK_LABEL };

struct reader {
    struct kri_worker *w;
    struct kr_vm *vm;
    kr_value stream;         /* resolved */
    struct kri_stream *st;   /* its native side; of a user-made stream: own */
    kr_value readtable, package;
    const unsigned char *syntax;
    const struct kri_vector *macro;
    int delimiter;           /* of read-delimited-list: it ends tokens too; -1 without */
    unsigned char own_syntax[256];
    kr_value letter_case;
    int base;
    int backquote;           /* how deep */
    kr_value labels;         /* alist (n . object), the object a MARK_LABEL record while it is being read */
    bool unresolved;         /* such a record was handed out */
    bool data;               /* inf and nan are numbers, as they are printed; in a program's source they are symbols */
    bool suppress;           /* skipping a form under #+ or #- */
    bool closes_at_end;      /* a string, or a file being loaded: an open list ends with it */
    bool user;               /* a user-made stream */
    unsigned line;           /* of the item being read */
    kr_value state;          /* the *reader-state* this read continues, or NIL */
    struct kri_text text;    /* the token */
    jmp_buf shallow;         /* where a read that goes too deep returns to: a handler needs the stack it used */
    struct kri_stream own;
    unsigned char own_bytes[KRI_STREAM_RESERVE + 1];
};

static kr_value read_item(struct reader *r, int c);
static kr_value read_object(struct reader *r);

/* ---- errors: with the place, where the stream is a file ---- */

_Noreturn static void read_error(struct reader *r, int code, kr_value value, const char *text)
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

_Noreturn static void end_error(struct reader *r, const char *within, unsigned line)
{
    if (line)
        r->line = line;
    read_error(r, KRI_E_EOF, r->stream, within);
}

_Noreturn static void too_deep(struct reader *r)
{
    read_error(r, KRI_E_STACK, KRI_NIL, "a form nested too deeply");
}

static void check_depth(struct reader *r)
{
    if (kri_native_exhausted(r->w))
        longjmp(r->shallow, 1); /* past frames of this file only, which hold nothing */
}

/* ---- characters ---- */

/* Lock the stream with an unread byte at hand; false, unlocked, at the end. */
static bool fill(struct reader *r)
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
static void sync_user(struct reader *r)
{
    if (r->user && r->own.pos < r->own.end) {
        r->own.pos = r->own.end;
        kri_stream_ungetc(r->w, r->stream, r->own_bytes[KRI_STREAM_RESERVE]);
    }
}

static int get(struct reader *r)
{
    if (!fill(r))
        return -1;
    int c = r->st->bytes[r->st->pos++];
    r->st->line += c == '\n';
    unlock(r);
    return c;
}

static int peek(struct reader *r)
{
    if (!fill(r))
        return -1;
    int c = r->st->bytes[r->st->pos];
    unlock(r);
    return c;
}

static void unget(struct reader *r, int c)
{
    if (!r->user)
        kri_lock(r->w, &r->st->lock);
    r->st->bytes[--r->st->pos] = (unsigned char)c;
    r->st->line -= c == '\n';
    unlock(r);
}

static void skip_line(struct reader *r)
{
    while (fill(r)) {
        unsigned char *from = r->st->bytes + r->st->pos, *nl = memchr(from, '\n', r->st->end - r->st->pos);
        r->st->pos = nl ? r->st->pos + (size_t)(nl - from) + 1 : r->st->end;
        r->st->line += nl != NULL;
        unlock(r);
        if (nl)
            return;
    }
}

/* The next character that is not white space or in a semicolon comment, taken; -1 at the end. */
static int skip_space(struct reader *r)
{
    for (;;) {
        int c = -1;
        if (!fill(r))
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

struct token {
    bool escaped;
    size_t colon, colons; /* the last run of colons; colons 0: none */
};

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
static void scan_token(struct reader *r, struct token *t, bool infix)
{
    enum { PLAIN, BARS, ESCAPE, BARS_ESCAPE } mode = PLAIN;
    struct kri_text *text = &r->text;
    bool done = false;
    text->n = 0;
    memset(t, 0, sizeof *t);
    while (!done) {
        if (text->n == text->cap)
            kri_text_reserve(r->w, text, 64);
        if (!fill(r)) {
            if (mode != PLAIN)
                end_error(r, "end of input in a symbol's name", 0);
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
        read_error(r, KRI_E_NO_PACKAGE, kri_string_n(w, p, t->colon), "a qualified symbol");
    if (t->colons >= 2)
        return kri_intern(w, name, length, package);
    bool external, found;
    kr_value symbol = kri_find_symbol(w, name, length, package, &external, &found);
    if (!external)
        read_error(r, KRI_E_NO_EXTERNAL, kri_string_n(w, p, n), "a qualified symbol");
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

static kr_value token_object(struct reader *r, const struct token *t)
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
    scan_token(r, &t, false);
    return token_object(r, &t);
}

static kr_value dot_symbol(struct reader *r) { return kri_intern(r->w, ".", 1, r->package); }

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
    bool frozen;
};

void kri_positions_begin(struct kri_worker *w)
{
    struct kri_positions *p = calloc(1, sizeof *p);
    if (!p)
        kri_error_memory(w, sizeof *p);
    p->prev = w->ctx->positions;
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

static kr_value read_list(struct reader *r, int close)
{
    struct kri_worker *w = r->w;
    kr_value head = KRI_NIL, tail = KRI_NIL;
    unsigned line = r->line;
    for (;;) {
        int c = skip_space(r);
        if (c < 0) {
            if (r->closes_at_end) {
                if (w->ctx->positions)
                    w->ctx->positions->unclosed_line = line; /* of the outermost list in the end */
                break;
            }
            end_error(r, "end of input in a list that began here", line);
        }
        if (c == close)
            break;
        kr_value v = read_item(r, c);
        if (kri_eq(v, NOTHING))
            continue;
        if (kri_eq(v, CLOSE))
            read_error(r, KRI_E_ILLEGAL_DELIMITER, kri_fixnum(c), "in a list");
        if (kri_eq(v, DOT)) {
            v = read_object(r);
            do
                c = skip_space(r);
            while (c >= 0 && c != close && kri_eq(read_item(r, c), NOTHING));
            if (c != close && !(c < 0 && r->closes_at_end))
                read_error(r, KRI_E_ILLEGAL_DELIMITER, v, "more than one object after a dot");
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
    unsigned line = r->line;
    bool escape = false, done = false;
    text->n = 0;
    while (!done) {
        if (text->n == text->cap)
            kri_text_reserve(r->w, text, text->cap);
        if (!fill(r)) {
            if (r->closes_at_end)
                break;
            end_error(r, "end of input in a string that began here", line);
        }
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
        read_error(r, KRI_E_ILLEGAL_CHARACTER, kri_fixnum(','), "a comma outside backquote");
    bool splice = peek(r) == '@';
    if (splice)
        get(r);
    r->backquote--;
    kr_value x = read_object(r);
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
    check_depth(r);
    kri_poll(w); /* nested backquotes grow exponentially */
    if (is_marker(x, MARK_COMMA))
        return marked(x);
    if (is_marker(x, MARK_SPLICE))
        read_error(r, KRI_E_ILLEGAL_CHARACTER, kri_fixnum('@'), ",@ outside a list");
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
        read_error(r, KRI_E_READ_LABEL, kri_fixnum(n), "a label");
    kr_value marker = make_marker(r, MARK_LABEL, KRI_UNBOUND), entry = kri_cons(w, kri_fixnum(n), marker);
    r->labels = kri_cons(w, entry, r->labels);
    kr_value v = read_object(r);
    if (kri_eq(v, marker))
        read_error(r, KRI_E_READ_LABEL, kri_fixnum(n), "a label of itself");
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
        read_error(r, KRI_E_READ_LABEL, kri_fixnum(n), "a reference to no label");
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

/* ---- vectors and arrays ---- */

static kr_value list_after(struct reader *r, int code)
{
    int c = skip_space(r);
    if (c < 0)
        end_error(r, "end of input after #", 0);
    if (c != '(')
        read_error(r, code, kri_fixnum(c), "( expected");
    return read_list(r, ')');
}

static size_t list_length(kr_value l)
{
    size_t n = 0;
    for (; kri_is_cons(l); l = kri_cdr(l))
        n++;
    return n;
}

static kr_value read_vector(struct reader *r, int n)
{
    kr_value l = read_list(r, ')'), last = KRI_NIL;
    size_t given = list_length(l), length = n <= 0 ? given : (size_t)n;
    if (r->suppress)
        return KRI_NIL;
    if (given > length)
        read_error(r, KRI_E_ILLEGAL_DELIMITER, kri_fixnum(n), "more elements than #n( says");
    kr_value v = kri_make_vector(r->w, length);
    for (size_t i = 0; i < length; i++) {
        if (kri_is_cons(l)) {
            last = kri_car(l);
            l = kri_cdr(l);
        }
        kri_store(r->w, kri_ptr(v), &kri_vector_of(v)->at[i], last);
    }
    return v;
}

/* An element of #f: a number, or a symbol that spells what the printer writes for NaN and infinities. */
static double float_element(struct reader *r, kr_value e)
{
    if (kri_is_number(e))
        return kri_to_double(r->w, e);
    if (kri_is_symbol(e)) {
        struct kri_string *s = kri_string_of(kri_symbol_of(r->vm, e)->pname);
        static const char *const names[] = {"NAN", "-NAN", "+NAN", "INF", "+INF", "-INF"};
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
            if (s->head.length == strlen(names[i]) && memcmp(s->byte, names[i], s->head.length) == 0)
                return i < 3 ? NAN : i == 5 ? -INFINITY : INFINITY;
    }
    read_error(r, KRI_E_READ_FVECTOR, e, "a number expected in #f");
}

static void set_element(struct reader *r, kr_value v, enum kri_element element, size_t i, kr_value e)
{
    if (element == KRI_ELEMENT_FLOAT)
        kri_fvector_of(v)->at[i] = float_element(r, e);
    else if (element == KRI_ELEMENT_INTEGER) {
        if (!kri_is_integer(e))
            read_error(r, KRI_E_NO_INTEGER, e, "an element of #i");
        kri_vector_set(r->w, v, i, e);
    } else
        kri_store(r->w, kri_ptr(v), &kri_vector_of(v)->at[i], e);
}

static kr_value make_elements(struct reader *r, enum kri_element element, size_t n)
{
    if (element == KRI_ELEMENT_FLOAT)
        return kri_make_fvector(r->w, n);
    if (element == KRI_ELEMENT_INTEGER)
        return kri_make_ivector(r->w, n);
    kr_value v = kri_make_vector(r->w, n);
    for (size_t i = 0; i < n; i++)
        kri_vector_of(v)->at[i] = kri_fixnum(0);
    return v;
}

static size_t row_length(struct reader *r, kr_value x)
{
    if (kri_is_list(x))
        return list_length(x);
    if (kri_is_vector(r->vm, x))
        return kri_length(x);
    return 0;
}

static kr_value row_element(struct reader *r, kr_value *rest, kr_value row, size_t i)
{
    if (kri_is_vector(r->vm, row))
        return kri_vector_ref(r->w, row, i);
    kr_value e = kri_car(*rest);
    *rest = kri_cdr(*rest);
    return e;
}

/* Fill FROM.. of ENTITY with the contents X of one axis and those below it. */
static void fill_axis(struct reader *r, kr_value entity, enum kri_element element, const size_t *dim, int rank, size_t from, kr_value x)
{
    size_t stride = 1, n = row_length(r, x);
    for (int i = 1; i < rank; i++)
        stride *= dim[i];
    if (!kri_is_list(x) && !kri_is_vector(r->vm, x))
        read_error(r, KRI_E_NO_SEQUENCE, x, "a row of an array");
    if (n > dim[0])
        read_error(r, KRI_E_ARRAY_INDEX, x, "a row longer than the first");
    kr_value rest = x;
    for (size_t i = 0; i < n; i++) {
        kr_value e = row_element(r, &rest, x, i);
        if (rank == 1)
            set_element(r, entity, element, from + i, e);
        else
            fill_axis(r, entity, element, dim + 1, rank - 1, from + i * stride, e);
    }
}

static kr_value read_array(struct reader *r, int rank, enum kri_element element)
{
    size_t dim[7], total = 1;
    kr_value contents = list_after(r, KRI_E_NO_SEQUENCE), x = contents;
    if (r->suppress)
        return KRI_NIL;
    if (rank < 0) { /* #f( and #i( are vectors; #a( a vector of rank 1 */
        size_t n = list_length(contents);
        kr_value v = make_elements(r, element, n);
        for (size_t i = 0; i < n; i++, contents = kri_cdr(contents))
            set_element(r, v, element, i, kri_car(contents));
        return v;
    }
    if (rank < 1 || rank > 7)
        read_error(r, KRI_E_ARRAY_DIMENSION, kri_fixnum(rank), "the rank of an array");
    for (int i = 0; i < rank; i++) {
        dim[i] = row_length(r, x);
        if (__builtin_mul_overflow(total, dim[i], &total) || total > UINT32_MAX)
            read_error(r, KRI_E_ARRAY_SIZE, kri_fixnum(rank), "an array");
        kr_value rest = x;
        x = dim[i] ? row_element(r, &rest, x, 0) : KRI_NIL;
    }
    kr_value entity = make_elements(r, element, total);
    struct kri_array *a = (struct kri_array *)kri_make(r->w, KRI_CLASS_ARRAY, 0, 12);
    a->entity = entity;
    a->rank = kri_fixnum(rank);
    a->offset = kri_fixnum(0);
    for (int i = 0; i < rank; i++)
        a->dim[i] = kri_fixnum((intptr_t)dim[i]);
    fill_axis(r, entity, element, dim, rank, 0, contents);
    return kri_value_of(a);
}

static kr_value read_bits(struct reader *r)
{
    struct kri_text *text = &r->text;
    text->n = 0;
    for (int c; (c = peek(r)) == '0' || c == '1'; get(r))
        kri_text_putc(r->w, text, (char)c);
    kr_value v = kri_instantiate(r->w, r->vm->classes[KRI_CLASS_BIT_VECTOR].object, (intptr_t)text->n);
    for (size_t i = 0; i < text->n; i++)
        if (text->p[i] == '1')
            kri_string_of(v)->byte[i / 8] |= (unsigned char)(1u << i % 8);
    return v;
}

/* ---- numbers of other bases, angles, characters ---- */

static int digit_value(int c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'z' ? c - 'a' + 10 : c >= 'A' && c <= 'Z' ? c - 'A' + 10 : 99;
}

static kr_value read_based(struct reader *r, int base)
{
    struct kri_text *text = &r->text;
    text->n = 0;
    int sign = peek(r);
    if (sign == '-' || sign == '+') {
        get(r);
        if (digit_value(peek(r)) >= base) {
            unget(r, sign);
            return kri_fixnum(0);
        }
        kri_text_putc(r->w, text, (char)sign);
    }
    for (int c; (c = peek(r)) >= 0 && digit_value(c) < base; get(r))
        kri_text_putc(r->w, text, (char)c);
    return text->n ? kri_parse_number(r->w, text->p, text->n, base) : kri_fixnum(0);
}

static kr_value read_angle(struct reader *r, double factor)
{
    kr_value v = read_object(r);
    if (r->suppress)
        return KRI_NIL;
    if (!kri_is_number(v))
        read_error(r, KRI_E_NO_NUMBER, v, "an angle");
    return kri_float(r->w, kri_to_double(r->w, v) * factor);
}

static kr_value read_character(struct reader *r)
{
    static const struct {
        const char *name;
        int code;
    } names[] = {{"SPACE", 32}, {"NEWLINE", 10}, {"TAB", 9}, {"RETURN", 13}, {"LINEFEED", 10}, {"PAGE", 12}, {"BACKSPACE", 8},
                 {"RUBOUT", 127}, {"LPAREN", 40}, {"RPAREN", 41}, {"NULL", 0}, {"NUL", 0}, {"ESC", 27}, {"ESCAPE", 27}, {"BELL", 7}, {"DELETE", 127}, {"FORMFEED", 12}};
    struct kri_text *text = &r->text;
    int c = get(r);
    if (c < 0)
        end_error(r, "end of input in a character", 0);
    text->n = 0;
    kri_text_putc(r->w, text, (char)c);
    for (int d; (d = peek(r)) >= 0 && (r->syntax[d] == CONSTITUENT || r->syntax[d] == NONTERMINATING); get(r))
        kri_text_putc(r->w, text, (char)d);
    if (text->n == 1)
        return kri_fixnum(c);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t j = 0;
        while (j < text->n && names[i].name[j] == (text->p[j] >= 'a' && text->p[j] <= 'z' ? text->p[j] - 32 : text->p[j]))
            j++;
        if (j == text->n && names[i].name[j] == 0)
            return kri_fixnum(names[i].code);
    }
    if (r->suppress)
        return KRI_NIL;
    read_error(r, KRI_E_SHARP_MACRO, kri_text_string(r->w, text), "no character of that name");
}

static void skip_block_comment(struct reader *r)
{
    unsigned line = r->line;
    for (int depth = 1, before = 0, c; depth > 0; before = c) {
        if ((c = get(r)) < 0)
            end_error(r, "end of input in a comment that began here", line);
        if (before == '|' && c == '#')
            depth--, c = 0;
        else if (before == '#' && c == '|')
            depth++, c = 0;
    }
}

/* ---- features, evaluation, instances ---- */

static bool feature_holds(struct reader *r, kr_value f)
{
    struct kr_vm *vm = r->vm;
    check_depth(r);
    if (kri_is_cons(f)) {
        kr_value head = kri_car(f), rest = kri_cdr(f);
        struct kri_string *s = kri_is_symbol(head) ? kri_string_of(kri_symbol_of(vm, head)->pname) : NULL;
        if (s && strcmp((char *)s->byte, "NOT") == 0)
            return !feature_holds(r, kri_is_cons(rest) ? kri_car(rest) : KRI_NIL);
        bool is_and = s && strcmp((char *)s->byte, "AND") == 0;
        if (!is_and && !(s && strcmp((char *)s->byte, "OR") == 0))
            read_error(r, KRI_E_SHARP_MACRO, f, "a feature expression");
        for (; kri_is_cons(rest); rest = kri_cdr(rest), kri_poll(r->w)) /* it may be circular */
            if (feature_holds(r, kri_car(rest)) != is_and)
                return !is_and;
        return is_and;
    }
    for (kr_value l = kri_special(r->w, vm->sym.features); kri_is_cons(l); l = kri_cdr(l), kri_poll(r->w))
        if (kri_eq(kri_car(l), f))
            return true;
    return false;
}

static kr_value read_feature(struct reader *r, bool wanted)
{
    bool suppressed = r->suppress;
    r->suppress = false;
    bool holds = feature_holds(r, read_object(r));
    r->suppress = suppressed;
    if (holds == wanted)
        return read_object(r);
    r->suppress = true;
    read_object(r);
    r->suppress = suppressed;
    return NOTHING;
}

static void load_readtable(struct reader *r);

static kr_value read_eval(struct reader *r)
{
    kr_value form = read_object(r);
    if (r->suppress)
        return KRI_NIL;
    sync_user(r);
    kr_value v = kri_eval(r->w, form);
    load_readtable(r);
    return v;
}

/* May the reader make instances of class INDEX and fill their slots? Not of classes whose slots C code relies on. */
static bool may_instantiate(struct kr_vm *vm, unsigned index)
{
    while (index >= KRI_CLASS_BUILTIN_COUNT)
        index = vm->classes[index].super;
    return index == KRI_CLASS_OBJECT || index == KRI_CLASS_PROPERTIED_OBJECT || index == KRI_CLASS_CONS || index == KRI_CLASS_ARRAY ||
           index == KRI_CLASS_PATHNAME || index == KRI_CLASS_COMPLEX;
}

static void check_array(struct reader *r, kr_value v)
{
    struct kri_array *a = (struct kri_array *)kri_ptr(v);
    bool good = kri_is_vector(r->vm, a->entity) && kri_is_fixnum(a->rank) && kri_fixnum_value(a->rank) >= 1 &&
                kri_fixnum_value(a->rank) <= 7 && kri_is_fixnum(a->offset) && kri_fixnum_value(a->offset) >= 0;
    size_t total = 1;
    for (int i = 0; good && i < (int)kri_fixnum_value(a->rank); i++)
        good = kri_is_fixnum(a->dim[i]) && kri_fixnum_value(a->dim[i]) >= 0 &&
               !__builtin_mul_overflow(total, (size_t)kri_fixnum_value(a->dim[i]), &total);
    if (!good || total > kri_length(a->entity) || (size_t)kri_fixnum_value(a->offset) > kri_length(a->entity) - total)
        read_error(r, KRI_E_READ_OBJECT, KRI_NIL, "an array's slots");
}

static kr_value read_instance(struct reader *r, bool named)
{
    struct kri_worker *w = r->w;
    struct kr_vm *vm = r->vm;
    kr_value l = list_after(r, KRI_E_READ_OBJECT);
    if (r->suppress)
        return KRI_NIL;
    kr_value name = kri_is_cons(l) ? kri_car(l) : KRI_NIL, cls = kri_is_symbol(name) ? kri_special(w, name) : name;
    if (!kri_is_class(vm, cls))
        read_error(r, KRI_E_NO_CLASS, name, "the class of an instance");
    unsigned index = (unsigned)kri_fixnum_value(kri_slot(&kri_metaclass_of(cls)->cix));
    if (vm->classes[index].element != KRI_ELEMENT_NONE || !may_instantiate(vm, index))
        read_error(r, KRI_E_READ_OBJECT, name, "no instance of this class can be read");
    kr_value instance = kri_instantiate(w, cls, -1), vars = kri_slot(&kri_metaclass_of(cls)->vars);
    struct kri_cell *c = kri_ptr(instance);
    size_t slots = vm->classes[c->cls].slots, i = 0;
    for (l = kri_cdr(l); kri_is_cons(l); l = kri_cdr(l)) {
        if (!named) {
            if (i >= slots)
                read_error(r, KRI_E_READ_OBJECT, name, "more values than slots");
            kri_store(w, c, &c->slot[i++], kri_car(l));
            continue;
        }
        kr_value slot = kri_car(l);
        l = kri_cdr(l);
        if (!kri_is_cons(l) || !kri_is_symbol(slot))
            read_error(r, KRI_E_READ_OBJECT, slot, "slot names and values expected");
        if (kri_eq(kri_symbol_of(vm, slot)->homepkg, vm->pkg_keyword))
            continue;
        struct kri_string *s = kri_string_of(kri_symbol_of(vm, slot)->pname);
        for (i = 0; i < slots && i < kri_length(vars); i++) {
            kr_value var = kri_vector_of(vars)->at[i];
            struct kri_string *v = kri_is_symbol(var) ? kri_string_of(kri_symbol_of(vm, var)->pname) : NULL;
            if (v && v->head.length == s->head.length && memcmp(v->byte, s->byte, s->head.length) == 0)
                break;
        }
        if (i >= slots)
            read_error(r, KRI_E_NO_SLOT, slot, "a slot of an instance");
        kri_store(w, c, &c->slot[i], kri_car(l));
    }
    if (c->cls == KRI_CLASS_ARRAY || kri_derivedp(vm, instance, vm->classes[KRI_CLASS_ARRAY].object))
        check_array(r, instance);
    return instance;
}

struct search {
    struct kri_worker *w;
    uintptr_t address;
    bool found;
};

static void match_cell(struct kri_cell *c, void *arg)
{
    struct search *s = arg;
    if ((uintptr_t)c == s->address)
        s->found = s->w->vm->classes[c->cls].depth > 0 || c->cls == KRI_CLASS_OBJECT || c->cls == KRI_CLASS_CONS;
}
static void search_heap(struct kri_worker *w, void *arg) { kri_heap_walk(w, match_cell, arg); }

/* "#<class #Xaddress anything>": the live object there, after a look through the heap. */
static kr_value read_live(struct reader *r)
{
    struct search s = {.w = r->w};
    int before = 0, depth = 1, digits = -1;
    unsigned line = r->line;
    bool in_string = false;
    while (depth > 0) {
        int c = get(r);
        if (c < 0)
            end_error(r, "end of input in #<", line);
        if (in_string) {
            if (c == '\\')
                get(r);
            in_string = c != '"';
            continue;
        }
        if (digits >= 0 && digits < 16 && digit_value(c) < 16) {
            s.address = s.address << 4 | (uintptr_t)digit_value(c);
            digits++;
        } else if (digits > 0) {
            digits = 16;
        }
        if (before == '#' && (c == 'X' || c == 'x') && digits < 0)
            digits = 0;
        in_string = c == '"';
        depth += (before == '#' && c == '<') - (c == '>');
        before = c;
    }
    if (r->suppress)
        return KRI_NIL;
    if (s.address && s.address % 8 == 0)
        kri_with_world_stopped(r->w, search_heap, &s);
    if (!s.found)
        read_error(r, KRI_E_LISP_FORM, KRI_NIL, "no live object at that address");
    return (kr_value){s.address};
}

/* ---- infix: %(a + b * c) ---- */

enum infix_kind { IN_END, IN_BRACKET, IN_OBJECT, IN_OPEN, IN_OPEN_BRACKET };
struct infix {
    struct reader *r;
    enum infix_kind kind; /* of the token at hand */
    kr_value object;
};

_Noreturn static void infix_error(struct infix *p)
{
    read_error(p->r, KRI_E_LISP_FORM, p->kind == IN_OBJECT ? p->object : KRI_NIL, "illegal expression in %( )");
}

static void infix_next(struct infix *p)
{
    struct reader *r = p->r;
    for (;;) {
        int c = skip_space(r);
        if (c < 0)
            end_error(r, "end of input in %(", 0);
        p->kind = c == '(' ? IN_OPEN : c == '[' ? IN_OPEN_BRACKET : c == ')' ? IN_END : c == ']' ? IN_BRACKET : IN_OBJECT;
        if (p->kind != IN_OBJECT)
            return;
        if (r->syntax[c] == TERMINATING) {
            p->object = read_item(r, c);
            if (kri_eq(p->object, NOTHING))
                continue;
            if (kri_eq(p->object, CLOSE) || kri_eq(p->object, DOT))
                infix_error(p);
            return;
        }
        struct token t;
        unget(r, c);
        scan_token(r, &t, true);
        if (r->text.n == 0 && !t.escaped)
            read_error(r, KRI_E_ILLEGAL_CHARACTER, kri_fixnum(c), "in %(");
        p->object = token_object(r, &t);
        if (kri_eq(p->object, DOT))
            infix_error(p);
        return;
    }
}

static bool infix_is(struct infix *p, const char *operator)
{
    if (p->kind != IN_OBJECT || !kri_is_symbol(p->object) || kri_is_nil(p->object))
        return false;
    struct kri_string *s = kri_string_of(kri_symbol_of(p->r->vm, p->object)->pname);
    return s->head.length == strlen(operator) && memcmp(s->byte, operator, s->head.length) == 0;
}

static kr_value lisp_symbol(struct infix *p, const char *name)
{
    return kri_intern(p->r->w, name, strlen(name), p->r->vm->pkg_lisp);
}

static kr_value infix_expression(struct infix *p);

/* Expressions up to the closing KIND, taken too. */
static kr_value infix_arguments(struct infix *p, enum infix_kind kind)
{
    struct kri_worker *w = p->r->w;
    kr_value reversed = KRI_NIL, list = KRI_NIL;
    infix_next(p);
    while (p->kind != kind)
        reversed = kri_cons(w, infix_expression(p), reversed);
    infix_next(p);
    for (; kri_is_cons(reversed); reversed = kri_cdr(reversed))
        list = kri_cons(w, kri_car(reversed), list);
    return list;
}

static kr_value infix_primary(struct infix *p)
{
    struct kri_worker *w = p->r->w;
    kr_value x;
    check_depth(p->r);
    if (infix_is(p, "-")) {
        kr_value minus = p->object;
        infix_next(p);
        return kri_list(w, 2, minus, infix_primary(p));
    }
    if (p->kind == IN_OPEN) {
        infix_next(p);
        x = infix_expression(p);
        if (p->kind != IN_END)
            infix_error(p);
        infix_next(p);
    } else if (p->kind == IN_OBJECT) {
        x = p->object;
        infix_next(p);
        if (p->kind == IN_OPEN)
            x = kri_cons(w, x, infix_arguments(p, IN_END));
    } else {
        infix_error(p);
    }
    while (p->kind == IN_OPEN_BRACKET)
        x = kri_cons(w, p->r->vm->sym.aref, kri_cons(w, x, infix_arguments(p, IN_BRACKET)));
    return x;
}

static kr_value infix_power(struct infix *p)
{
    struct kri_worker *w = p->r->w;
    kr_value x = infix_primary(p);
    if (!infix_is(p, "**"))
        return x;
    infix_next(p);
    kr_value e = infix_power(p);
    intptr_t n = kri_is_fixnum(e) ? kri_fixnum_value(e) : 0;
    if (n < 1 || n > 5)
        return kri_list(w, 3, lisp_symbol(p, "EXPT"), x, e);
    kr_value product = KRI_NIL;
    while (n-- > 0)
        product = kri_cons(w, x, product);
    return kri_cons(w, lisp_symbol(p, "*"), product);
}

static kr_value infix_product(struct infix *p)
{
    struct kri_worker *w = p->r->w;
    kr_value x = infix_power(p), last = KRI_NIL, op = KRI_NIL;
    while (infix_is(p, "*") || infix_is(p, "/")) {
        bool same = kri_eq(p->object, op);
        op = p->object;
        infix_next(p);
        kr_value pair = kri_cons(w, infix_power(p), KRI_NIL);
        if (same)
            kri_store(w, kri_ptr(last), &kri_cons_of(last)->cdr, pair);
        else
            x = kri_cons(w, op, kri_cons(w, x, pair));
        last = pair;
    }
    return x;
}

static kr_value infix_sum(struct infix *p)
{
    struct kri_worker *w = p->r->w;
    kr_value x = infix_product(p), last = KRI_NIL;
    while (infix_is(p, "+") || infix_is(p, "-")) {
        bool minus = infix_is(p, "-");
        infix_next(p);
        kr_value term = infix_product(p);
        kr_value pair = kri_cons(w, minus ? kri_list(w, 2, lisp_symbol(p, "-"), term) : term, KRI_NIL);
        if (kri_is_nil(last))
            x = kri_cons(w, lisp_symbol(p, "+"), kri_cons(w, x, pair));
        else
            kri_store(w, kri_ptr(last), &kri_cons_of(last)->cdr, pair);
        last = pair;
    }
    return x;
}

static kr_value infix_expression(struct infix *p)
{
    struct kri_worker *w = p->r->w;
    kr_value x = infix_sum(p);
    while (infix_is(p, "<") || infix_is(p, ">") || infix_is(p, "<=") || infix_is(p, ">=")) {
        kr_value op = p->object;
        infix_next(p);
        x = kri_list(w, 3, op, x, infix_sum(p));
    }
    if (!infix_is(p, "="))
        return x;
    infix_next(p);
    kr_value set = kri_is_symbol(x) ? p->r->vm->sym.setq : lisp_symbol(p, "SETF");
    return kri_list(w, 3, set, x, infix_expression(p));
}

static kr_value read_infix(struct reader *r)
{
    struct infix p = {.r = r};
    infix_next(&p);
    kr_value x = infix_expression(&p);
    if (p.kind != IN_END)
        infix_error(&p);
    return x;
}

/* ---- macros ---- */

static kr_value read_native(struct reader *r, enum native n, int c, int number)
{
    struct kri_worker *w = r->w;
    switch (n) {
    case NATIVE_LIST: return read_list(r, ')');
    case NATIVE_CLOSE: return CLOSE;
    case NATIVE_QUOTE: {
        unsigned line = r->line;
        kr_value form = kri_list(w, 2, r->vm->sym.quote, read_object(r));
        note_position(r, form, line);
        return form;
    }
    case NATIVE_FUNCTION: {
        unsigned line = r->line;
        kr_value form = kri_list(w, 2, r->vm->sym.function, read_object(r));
        note_position(r, form, line);
        return form;
    }
    case NATIVE_STRING: return read_string(r, c);
    case NATIVE_COMMENT:
    case NATIVE_LINE_COMMENT: skip_line(r); return NOTHING;
    case NATIVE_BACKQUOTE: {
        unsigned line = r->line;
        r->backquote++;
        kr_value x = read_object(r);
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
        if (peek(r) != '(') {
            unget(r, c);
            return read_token(r);
        }
        get(r);
        return read_infix(r);
    case NATIVE_VECTOR: return read_vector(r, number);
    case NATIVE_ARRAY: return read_array(r, number, KRI_ELEMENT_T);
    case NATIVE_FLOAT_ARRAY: return read_array(r, number, KRI_ELEMENT_FLOAT);
    case NATIVE_INTEGER_ARRAY: return read_array(r, number, KRI_ELEMENT_INTEGER);
    case NATIVE_BITS: return read_bits(r);
    case NATIVE_BINARY: return read_based(r, 2);
    case NATIVE_OCTAL: return read_based(r, 8);
    case NATIVE_HEX: return read_based(r, 16);
    case NATIVE_DEGREES: return read_angle(r, M_PI / 180);
    case NATIVE_RADIANS: return read_angle(r, 180 / M_PI);
    case NATIVE_PATHNAME: {
        kr_value s = read_object(r);
        if (r->suppress)
            return KRI_NIL;
        if (!kri_is_string(r->vm, s))
            read_error(r, KRI_E_NO_STRING, s, "a pathname");
        return kri_parse_namestring(w, (char *)kri_string_of(s)->byte, kri_length(s));
    }
    case NATIVE_COMPLEX: {
        kr_value parts = read_object(r), real = kri_is_cons(parts) ? kri_car(parts) : KRI_NIL;
        kr_value imaginary = kri_is_cons(parts) && kri_is_cons(kri_cdr(parts)) ? kri_car(kri_cdr(parts)) : KRI_NIL;
        if (r->suppress)
            return KRI_NIL;
        if (!kri_is_number(real) || !kri_is_number(imaginary) || kri_has_class(real, KRI_CLASS_COMPLEX) || kri_has_class(imaginary, KRI_CLASS_COMPLEX))
            read_error(r, KRI_E_NO_NUMBER, parts, "#c(real imaginary)");
        return kri_make_complex(w, real, imaginary);
    }
    case NATIVE_EVAL:
    case NATIVE_EVAL2: return read_eval(r);
    case NATIVE_UNINTERNED: {
        struct token t;
        scan_token(r, &t, false);
        return r->suppress ? KRI_NIL : kri_make_symbol(w, kri_text_string(w, &r->text));
    }
    case NATIVE_LABEL: return read_label(r, number);
    case NATIVE_REFERENCE: return read_reference(r, number);
    case NATIVE_BLOCK_COMMENT: skip_block_comment(r); return NOTHING;
    case NATIVE_FEATURE: return read_feature(r, true);
    case NATIVE_NO_FEATURE: return read_feature(r, false);
    case NATIVE_STRUCTURE: return read_instance(r, true);
    case NATIVE_OBJECT:
    case NATIVE_OBJECT2: return read_instance(r, false);
    case NATIVE_LIVE: return read_live(r);
    case NATIVE_CHARACTER: return read_character(r);
    default: read_error(r, KRI_E_SHARP_MACRO, kri_fixnum(c), "no such macro");
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
    sync_user(r);
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
    load_readtable(r);
    return v;
}

static kr_value read_dispatch(struct reader *r, kr_value table)
{
    intptr_t number = -1;
    int c;
    for (; (c = get(r)) >= '0' && c <= '9'; number = number > 100000000 ? number : (number < 0 ? 0 : number * 10) + c - '0') {
    }
    if (c < 0) {
        if (r->closes_at_end)
            return NOTHING;
        end_error(r, "end of input after #", 0);
    }
    if (number > INT_MAX)
        read_error(r, KRI_E_SHARP_MACRO, kri_integer(r->w, number), "a number too large");
    int upper = c >= 'a' && c <= 'z' ? c - 32 : c;
    kr_value m = kri_slot(&kri_vector_of(table)->at[upper]);
    if (kri_is_fixnum(m))
        return read_native(r, (enum native)kri_fixnum_value(m), upper, (int)number);
    if (kri_is_nil(m)) {
        if (r->suppress)
            return KRI_NIL;
        char text[2] = {(char)c, 0};
        read_error(r, KRI_E_SHARP_MACRO, kri_string_n(r->w, text, 1), "no # macro defined");
    }
    return r->suppress ? read_object(r) : user_macro(r, m, upper, 3, (int)number);
}

/* The item that begins with C (taken, not white space): an object, or NOTHING, DOT, CLOSE. */
static kr_value read_item(struct reader *r, int c)
{
    check_depth(r);
    enum syntax s = (enum syntax)r->syntax[c];
    if (s == CONSTITUENT || s == SINGLE_ESCAPE || s == MULTIPLE_ESCAPE) {
        unget(r, c);
        return read_token(r);
    }
    if (s == ILLEGAL)
        read_error(r, KRI_E_ILLEGAL_CHARACTER, kri_fixnum(c), "a control character");
    kr_value m = kri_slot(&r->macro->at[c]);
    if (kri_is_fixnum(m))
        return read_native(r, (enum native)kri_fixnum_value(m), c, -1);
    if (kri_has_class(m, KRI_CLASS_VECTOR))
        return read_dispatch(r, m);
    if (kri_is_nil(m)) {
        unget(r, c);
        struct token t;
        scan_token(r, &t, false);
        if (r->text.n == 0 && !t.escaped) { /* a terminating character without a macro stands for itself */
            get(r);
            char text = (char)c;
            return kri_intern(r->w, &text, 1, r->package);
        }
        return token_object(r, &t);
    }
    return user_macro(r, m, c, 2, 0);
}

/* The next object, wherever one must come. */
static kr_value read_object(struct reader *r)
{
    for (;;) {
        int c = skip_space(r);
        if (c < 0)
            end_error(r, "end of input where an object was expected", 0);
        kr_value v = read_item(r, c);
        if (kri_eq(v, NOTHING))
            continue;
        if (kri_eq(v, CLOSE))
            read_error(r, KRI_E_ILLEGAL_DELIMITER, kri_fixnum(c), "an object expected");
        return kri_eq(v, DOT) ? dot_symbol(r) : v;
    }
}

/* ---- entries ---- */

/* The current readtable, checked: its slots can be set from Lisp. */
static struct kri_readtable *readtable_of(struct kri_worker *w, kr_value v)
{
    struct kri_readtable *t = (struct kri_readtable *)kri_ptr(v);
    if (!kri_is_pointer(v) || !kri_derivedp(w->vm, v, w->vm->classes[KRI_CLASS_READTABLE].object) || !kri_is_string(w->vm, t->syntax) ||
        kri_length(t->syntax) < 256 || !kri_has_class(t->macro, KRI_CLASS_VECTOR) || kri_length(t->macro) < 256 ||
        !kri_has_class(t->dispatch, KRI_CLASS_VECTOR) || kri_length(t->dispatch) < 256)
        kri_error(w, KRI_E_TYPE_MISMATCH, v, "readtable expected");
    return t;
}

static void load_readtable(struct reader *r)
{
    struct kri_worker *w = r->w;
    r->readtable = kri_special(w, r->vm->sym.readtable);
    struct kri_readtable *t = readtable_of(w, r->readtable);
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

static void setup(struct reader *r, struct kri_worker *w, kr_value stream, int delimiter)
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
    r->closes_at_end = !r->user && (r->st->kind == KRI_STREAM_STRING || (w->ctx->positions && !w->ctx->positions->frozen));
    kr_value base = kri_special(w, vm->sym.read_base);
    r->base = kri_is_fixnum(base) && kri_fixnum_value(base) >= 2 && kri_fixnum_value(base) <= 36 ? (int)kri_fixnum_value(base) : 10;
    kri_text_init(&r->text);
    load_readtable(r);
    kr_value state = kri_special(w, vm->sym.reader_state);
    if (kri_has_class(state, KRI_CLASS_RECORD) && kri_eq(kri_ptr(state)->slot[STATE_STREAM], r->stream)) {
        r->state = state;
        r->backquote = (int)kri_fixnum_value(kri_ptr(state)->slot[STATE_BACKQUOTE]);
        r->labels = kri_slot(&kri_ptr(state)->slot[STATE_LABELS]);
        r->unresolved = !kri_is_nil(kri_slot(&kri_ptr(state)->slot[STATE_UNRESOLVED]));
    }
}

/* The end of a read that gave V: labels are resolved by the outermost one. */
static kr_value finish(struct reader *r, kr_value v)
{
    sync_user(r);
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
    setup(&r, w, stream, -1);
    r.data = data;
    if (setjmp(r.shallow))
        too_deep(&r);
    for (;;) {
        int c = skip_space(&r);
        if (c < 0) {
            if (eof_error)
                kri_error(w, KRI_E_EOF, r.stream, NULL);
            sync_user(&r);
            return eof_value;
        }
        if (w->ctx->positions && w->ctx->positions->form_line == 0)
            w->ctx->positions->form_line = r.line;
        kr_value v = read_item(&r, c);
        if (kri_eq(v, CLOSE))
            continue; /* a stray parenthesis */
        if (kri_eq(v, NOTHING))
            v = KRI_NIL;
        else if (kri_eq(v, DOT))
            v = dot_symbol(&r);
        return finish(&r, v);
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
    setup(&r, w, stream, delimiter);
    r.closes_at_end = false;
    if (setjmp(r.shallow))
        too_deep(&r);
    if (r.st)
        r.line = (unsigned)kri_stream_line(w, r.stream);
    return finish(&r, read_list(&r, delimiter));
}

kr_value kri_read_from_string(struct kri_worker *w, kr_value string)
{
    return kri_read(w, kri_make_string_input(w, (char *)kri_string_of(string)->byte, kri_length(string)), true, KRI_NIL);
}

/* ---- are forms complete? (the prompt's question) ---- */

struct scan {
    const unsigned char *syntax;
    const struct kri_vector *macro;
    const char *p;
    size_t n, at, line_start;
};

static bool skip_constituents(struct scan *s)
{
    bool bars = false;
    for (; s->at < s->n; s->at++) {
        int c = (unsigned char)s->p[s->at], syntax = s->syntax[c];
        if (syntax == SINGLE_ESCAPE) {
            if (++s->at >= s->n)
                return false;
        } else if (syntax == MULTIPLE_ESCAPE) {
            bars = !bars;
        } else if (!bars && syntax != CONSTITUENT && syntax != NONTERMINATING) {
            break;
        }
    }
    return !bars;
}

static bool skip_to(struct scan *s, char end)
{
    for (; s->at < s->n; s->at++) {
        if (s->p[s->at] == '\\' && end == '"')
            s->at++;
        else if (s->p[s->at] == end) {
            s->at++;
            return true;
        }
    }
    return false;
}

bool kri_form_complete(struct kri_worker *w, const char *text, size_t n, int *indent)
{
    enum { DEEPEST = 512 };
    struct kri_readtable *t = readtable_of(w, kri_special(w, w->vm->sym.readtable));
    struct scan s = {.syntax = kri_string_of(t->syntax)->byte, .macro = kri_vector_of(t->macro), .p = text, .n = n};
    int columns[DEEPEST], depth = 0, wanted = 0; /* wanted: objects that must still come at depth 0 */
    bool open_token = false;
    while (s.at < n && !open_token) {
        int c = (unsigned char)text[s.at], syntax = s.syntax[c];
        bool object = false;
        if (syntax == WHITE || syntax == ILLEGAL) {
            if (c == '\n')
                s.line_start = s.at + 1;
            s.at++;
            continue;
        }
        kr_value m = s.macro->at[c];
        int native = syntax == TERMINATING || syntax == NONTERMINATING ? (kri_is_fixnum(m) ? (int)kri_fixnum_value(m) : 0) : 0;
        if (native == 0 && kri_has_class(m, KRI_CLASS_VECTOR) && syntax != CONSTITUENT)
            native = NATIVE_SHARP;
        switch (native) {
        case NATIVE_LIST:
            if (depth < DEEPEST)
                columns[depth] = (int)(s.at - s.line_start);
            depth++;
            s.at++;
            break;
        case NATIVE_CLOSE:
            depth -= depth > 0;
            object = true;
            s.at++;
            break;
        case NATIVE_STRING:
            s.at++;
            open_token = !skip_to(&s, (char)c);
            object = true;
            break;
        case NATIVE_COMMENT:
            skip_to(&s, '\n');
            s.line_start = s.at;
            break;
        case NATIVE_QUOTE:
        case NATIVE_BACKQUOTE:
        case NATIVE_COMMA:
            wanted += depth == 0 && wanted == 0;
            s.at++;
            break;
        case NATIVE_INFIX:
            s.at++;
            if (s.at < n && text[s.at] == '(')
                break;
            open_token = !skip_constituents(&s);
            object = true;
            break;
        case NATIVE_SHARP:
            s.at++;
            while (s.at < n && text[s.at] >= '0' && text[s.at] <= '9')
                s.at++;
            if (s.at >= n) {
                open_token = true;
                break;
            }
            switch (text[s.at]) {
            case '\\':
                s.at += 2;
                open_token = s.at > n || !skip_constituents(&s);
                object = true;
                break;
            case '|':
                s.at++;
                for (int nest = 1; nest > 0; s.at++) {
                    if (s.at + 1 >= n) {
                        open_token = true;
                        break;
                    }
                    if ((text[s.at] == '|' && text[s.at + 1] == '#') || (text[s.at] == '#' && text[s.at + 1] == '|'))
                        nest += text[s.at++] == '|' ? -1 : 1;
                }
                break;
            case '!': skip_to(&s, '\n'); break;
            case '+':
            case '-':
                s.at++;
                wanted = depth == 0 ? (wanted ? wanted : 1) + 1 : wanted;
                break;
            case '\'': case '.': case ',': case '=': case 'p': case 'P': case 'd': case 'D': case 'r': case 'R':
                s.at++;
                wanted += depth == 0 && wanted == 0;
                break;
            case '(': break;
            case '#': s.at++; object = true; break;
            default:
                s.at++;
                if (s.at < n && text[s.at] == '(')
                    break;
                open_token = !skip_constituents(&s);
                object = true;
            }
            break;
        default:
            if (syntax == TERMINATING) {
                s.at++;
                break;
            }
            open_token = !skip_constituents(&s);
            object = true;
        }
        wanted -= object && depth == 0 && wanted > 0;
    }
    if (indent)
        *indent = depth > 0 && !open_token ? columns[(depth < DEEPEST ? depth : DEEPEST) - 1] + 2 : 0;
    return depth == 0 && wanted == 0 && !open_token;
}

/* ---- readtables ---- */

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
    s[127] = ILLEGAL;
    set_syntax(s, " \t\n\v\f\r", WHITE);
    set_syntax(s, "()\"';`,", TERMINATING);
    set_syntax(s, "#%", NONTERMINATING);
    set_syntax(s, "\\", SINGLE_ESCAPE);
    set_syntax(s, "|", MULTIPLE_ESCAPE);
    for (int i = 1; i < NATIVE_COUNT; i++) {
        struct kri_vector *v = kri_vector_of(natives[i].dispatched ? dispatch : macro);
        kri_store(w, &v->head, &v->at[natives[i].c], kri_fixnum(i));
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
    readtable_of(w, t);
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
    struct kri_readtable *f = readtable_of(w, from), *t = readtable_of(w, to);
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
    const char *name = natives[kri_fixnum_value(m)].name;
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
    struct kri_readtable *t = readtable_of(w, table);
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
    struct kri_readtable *t = readtable_of(w, table), *f = readtable_of(w, source);
    kr_value entry = kri_slot(&kri_vector_of(f->macro)->at[from]);
    kri_store(w, kri_ptr(t->macro), &kri_vector_of(t->macro)->at[c], kri_has_class(entry, KRI_CLASS_VECTOR) ? copy_vector(w, entry) : entry);
    kri_string_of(t->syntax)->byte[c] = kri_string_of(f->syntax)->byte[from];
    return w->vm->sym.t;
}

KR_BUILTIN(get_macro_character, "get-macro-character", "(char &optional readtable)",
           "The function (or its name) that reads what begins with CHAR in READTABLE, or nil.")
{
    int c = arg_character(w, argv, 0);
    struct kri_readtable *t = readtable_of(w, arg_readtable(w, argc, argv, 1));
    kr_value m = kri_slot(&kri_vector_of(t->macro)->at[c]);
    return kri_has_class(m, KRI_CLASS_VECTOR) ? macro_value(w, kri_fixnum(NATIVE_SHARP)) : macro_value(w, m);
}

KR_BUILTIN(make_dispatch_macro_character, "make-dispatch-macro-character", "(char &optional non-terminating readtable)",
           "Make CHAR a dispatch macro character with an empty table, like #. Returns t.")
{
    int c = arg_character(w, argv, 0);
    struct kri_readtable *t = readtable_of(w, arg_readtable(w, argc, argv, 2));
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
    struct kri_readtable *t = readtable_of(w, arg_readtable(w, argc, argv, 3));
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
    struct kri_readtable *t = readtable_of(w, arg_readtable(w, argc, argv, 2));
    kr_value table = kri_slot(&kri_vector_of(t->macro)->at[d]);
    return kri_has_class(table, KRI_CLASS_VECTOR) ? macro_value(w, kri_slot(&kri_vector_of(table)->at[c])) : KRI_NIL;
}

/* The standard macros as functions of (stream char n), for other characters and other readtables. */
static kr_value call_native(struct kri_worker *w, enum native n, int argc, kr_value *argv)
{
    struct reader r;
    int c = argc > 1 ? arg_character(w, argv, 1) : natives[n].c;
    intptr_t number = argc > 2 && kri_is_fixnum(argv[2]) ? kri_fixnum_value(argv[2]) : 0;
    setup(&r, w, argv[0], -1);
    r.line = (unsigned)kri_stream_line(w, r.stream);
    if (setjmp(r.shallow))
        too_deep(&r);
    if (number < 0 || number > INT_MAX)
        kri_argument_error(w, 2, argv[2], KRI_E_RANGE);
    kr_value v = n == NATIVE_SHARP ? read_dispatch(&r, readtable_of(w, r.readtable)->dispatch)
                                   : read_native(&r, n, c, number == 0 && n != NATIVE_LABEL && n != NATIVE_REFERENCE ? -1 : (int)number);
    if (kri_eq(v, NOTHING) || kri_eq(v, CLOSE))
        v = KRI_NIL;
    return finish(&r, kri_eq(v, DOT) ? dot_symbol(&r) : v);
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
