/* pathname.c -- file names as the reader and printer need them: "/a/b.c" to a pathname and back. A pathname's directory is a
 * list of strings, with :root in front if the name was absolute; the rest of the pathname functions are Lisp. */
#include "lisp/reader.h"

kr_value kri_parse_namestring(struct kri_worker *w, const char *text, size_t n)
{
    struct kri_pathname *p = (struct kri_pathname *)kri_make(w, KRI_CLASS_PATHNAME, 0, 6);
    kr_value directory = KRI_NIL, last = KRI_NIL;
    size_t start = 0;
    bool root = n > 0 && text[0] == '/';
    for (size_t i = 0; i < n; i++) {
        if (text[i] != '/')
            continue;
        if (i > start || (i == 0 && root)) {
            kr_value part = i == 0 ? kri_keyword(w, "ROOT") : kri_string_n(w, text + start, i - start);
            kr_value pair = kri_cons(w, part, KRI_NIL);
            if (kri_is_nil(last))
                directory = pair;
            else
                kri_store(w, kri_ptr(last), &kri_cons_of(last)->cdr, pair);
            last = pair;
        }
        start = i + 1;
    }
    kri_store(w, &p->head, &p->directory, directory);
    const char *file = text + start, *dot = NULL;
    size_t length = n - start;
    for (size_t i = 0; i < length; i++)
        if (file[i] == '.')
            dot = file + i;
    if ((length == 1 && file[0] == '.') || (length == 2 && file[0] == '.' && file[1] == '.'))
        dot = NULL;
    size_t stem = dot ? (size_t)(dot - file) : length;
    if (stem > 0)
        kri_store(w, &p->head, &p->name, kri_string_n(w, file, stem));
    if (dot)
        kri_store(w, &p->head, &p->type, kri_string_n(w, dot + 1, length - stem - 1));
    return kri_value_of(p);
}

/* A part that is no string, such as :root, has no text. */
static void add_part(struct kri_worker *w, struct kri_text *t, kr_value part)
{
    if (kri_is_string(w->vm, part))
        kri_text_write(w, t, (char *)kri_string_of(part)->byte, kri_length(part));
}

kr_value kri_namestring(struct kri_worker *w, kr_value pathname)
{
    struct kri_pathname *p = (struct kri_pathname *)kri_ptr(pathname);
    struct kri_text t;
    kri_text_init(&t);
    for (kr_value l = kri_slot(&p->directory); kri_is_cons(l); l = kri_cdr(l), kri_poll(w)) {
        add_part(w, &t, kri_car(l));
        kri_text_putc(w, &t, '/');
    }
    add_part(w, &t, kri_slot(&p->name));
    if (!kri_is_nil(kri_slot(&p->type))) {
        kri_text_putc(w, &t, '.');
        add_part(w, &t, kri_slot(&p->type));
    }
    return kri_text_string(w, &t);
}
