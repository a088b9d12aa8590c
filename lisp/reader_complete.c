/* reader_complete.c -- does a text hold whole forms, and if not, where might the next line begin? The prompt's questions. */
#include "lisp/reader_private.h"

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
    struct kri_readtable *t = kri_readtable_of(w, kri_special(w, w->vm->sym.readtable));
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
