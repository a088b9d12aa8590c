/* yamllib.c -- the module yamllib.so: libyaml's parser and emitter as plain functions for lib/yaml.l, which calls them as foreign functions.
 *
 * The module knows nothing of Karakuri, and nothing else links libyaml. A parser keeps a copy of its text and one event at a time;
 * an emitter gathers what it writes. Texts are handed over by copying into the caller's buffer. */
#include <limits.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#define EXPORT __attribute__((visibility("default")))

/* What kri_yaml_next returns; lib/yaml.l has the same numbers. */
enum kind { PROBLEM = -1, END, DOCUMENT, DOCUMENT_END, ALIAS, SCALAR, SEQUENCE, SEQUENCE_END, MAPPING, MAPPING_END };

struct reader {
    yaml_parser_t parser;
    yaml_event_t event; /* type YAML_NO_EVENT: none */
    char text[];
};

EXPORT void *kri_yaml_open(const char *text, size_t n)
{
    struct reader *r = malloc(sizeof *r + n);
    if (!r)
        return NULL;
    memset(&r->event, 0, sizeof r->event);
    memcpy(r->text, text, n);
    if (!yaml_parser_initialize(&r->parser)) {
        free(r);
        return NULL;
    }
    yaml_parser_set_input_string(&r->parser, (const unsigned char *)r->text, n);
    return r;
}

EXPORT void kri_yaml_close(struct reader *r)
{
    yaml_event_delete(&r->event);
    yaml_parser_delete(&r->parser);
    free(r);
}

/* Go on to the next event that means something. */
EXPORT int kri_yaml_next(struct reader *r)
{
    for (;;) {
        yaml_event_delete(&r->event);
        if (!yaml_parser_parse(&r->parser, &r->event)) {
            memset(&r->event, 0, sizeof r->event);
            return PROBLEM;
        }
        switch (r->event.type) {
        case YAML_DOCUMENT_START_EVENT: return DOCUMENT;
        case YAML_DOCUMENT_END_EVENT: return DOCUMENT_END;
        case YAML_ALIAS_EVENT: return ALIAS;
        case YAML_SCALAR_EVENT: return SCALAR;
        case YAML_SEQUENCE_START_EVENT: return SEQUENCE;
        case YAML_SEQUENCE_END_EVENT: return SEQUENCE_END;
        case YAML_MAPPING_START_EVENT: return MAPPING;
        case YAML_MAPPING_END_EVENT: return MAPPING_END;
        case YAML_STREAM_END_EVENT:
        case YAML_NO_EVENT: return END;
        default: break; /* the start of the stream */
        }
    }
}

EXPORT size_t kri_yaml_length(const struct reader *r)
{
    return r->event.type == YAML_SCALAR_EVENT ? r->event.data.scalar.length : 0;
}

/* Copy the scalar's text, of kri_yaml_length bytes. */
EXPORT void kri_yaml_copy(const struct reader *r, char *to) { memcpy(to, r->event.data.scalar.value, kri_yaml_length(r)); }

/* Is the scalar written without quotes and without a tag? */
EXPORT int kri_yaml_plain(const struct reader *r) { return r->event.type == YAML_SCALAR_EVENT && r->event.data.scalar.plain_implicit; }

EXPORT const char *kri_yaml_anchor(const struct reader *r)
{
    switch (r->event.type) {
    case YAML_ALIAS_EVENT: return (char *)r->event.data.alias.anchor;
    case YAML_SCALAR_EVENT: return (char *)r->event.data.scalar.anchor;
    case YAML_SEQUENCE_START_EVENT: return (char *)r->event.data.sequence_start.anchor;
    case YAML_MAPPING_START_EVENT: return (char *)r->event.data.mapping_start.anchor;
    default: return NULL;
    }
}

EXPORT const char *kri_yaml_tag(const struct reader *r)
{
    switch (r->event.type) {
    case YAML_SCALAR_EVENT: return (char *)r->event.data.scalar.tag;
    case YAML_SEQUENCE_START_EVENT: return (char *)r->event.data.sequence_start.tag;
    case YAML_MAPPING_START_EVENT: return (char *)r->event.data.mapping_start.tag;
    default: return NULL;
    }
}

/* Where the event begins, or where the problem is, from 1. libyaml has no mark for bytes that are not UTF-8: the parser's place. */
static yaml_mark_t mark(const struct reader *r)
{
    if (r->parser.error == YAML_NO_ERROR)
        return r->event.start_mark;
    return r->parser.error == YAML_READER_ERROR || r->parser.error == YAML_MEMORY_ERROR ? r->parser.mark : r->parser.problem_mark;
}
EXPORT size_t kri_yaml_line(const struct reader *r) { return mark(r).line + 1; }
EXPORT size_t kri_yaml_column(const struct reader *r) { return mark(r).column + 1; }

EXPORT const char *kri_yaml_problem(const struct reader *r)
{
    return r->parser.problem ? r->parser.problem : r->parser.error == YAML_MEMORY_ERROR ? "no memory" : NULL;
}
EXPORT const char *kri_yaml_context(const struct reader *r) { return r->parser.context; }

/* ---- the emitter ---- */

struct writer {
    yaml_emitter_t emitter;
    char *text;
    size_t n, size;
};

static int gather(void *data, unsigned char *bytes, size_t n)
{
    struct writer *w = data;
    if (n > w->size - w->n) {
        size_t size = 2 * w->size + n;
        char *text = realloc(w->text, size);
        if (!text)
            return 0;
        w->text = text;
        w->size = size;
    }
    memcpy(w->text + w->n, bytes, n);
    w->n += n;
    return 1;
}

EXPORT void kri_yaml_writer_close(struct writer *w)
{
    yaml_emitter_delete(&w->emitter);
    free(w->text);
    free(w);
}

static int emit(struct writer *w, int made, yaml_event_t *event) { return made && yaml_emitter_emit(&w->emitter, event); }

EXPORT void *kri_yaml_writer_open(int indent, int width)
{
    struct writer *w = calloc(1, sizeof *w);
    yaml_event_t e;
    if (!w)
        return NULL;
    if (!yaml_emitter_initialize(&w->emitter)) {
        free(w);
        return NULL;
    }
    yaml_emitter_set_output(&w->emitter, gather, w);
    yaml_emitter_set_encoding(&w->emitter, YAML_UTF8_ENCODING);
    yaml_emitter_set_unicode(&w->emitter, 1);
    yaml_emitter_set_indent(&w->emitter, indent);
    yaml_emitter_set_width(&w->emitter, width);
    if (!emit(w, yaml_stream_start_event_initialize(&e, YAML_UTF8_ENCODING), &e)) {
        kri_yaml_writer_close(w);
        return NULL;
    }
    return w;
}

/* Each of these returns 1, or 0: kri_yaml_writer_problem tells why. ANCHOR may be NULL. */
EXPORT int kri_yaml_document(struct writer *w, int marked)
{
    yaml_event_t e;
    return emit(w, yaml_document_start_event_initialize(&e, NULL, NULL, NULL, !marked), &e);
}
EXPORT int kri_yaml_document_end(struct writer *w)
{
    yaml_event_t e;
    return emit(w, yaml_document_end_event_initialize(&e, 1), &e);
}
EXPORT int kri_yaml_alias(struct writer *w, const char *anchor)
{
    yaml_event_t e;
    return emit(w, yaml_alias_event_initialize(&e, (const unsigned char *)anchor), &e);
}
/* STYLE 0: as it fits best, 1: in quotes, 2: on lines of its own. */
EXPORT int kri_yaml_scalar(struct writer *w, const char *anchor, const char *text, size_t n, int style)
{
    static const yaml_scalar_style_t styles[] = {YAML_ANY_SCALAR_STYLE, YAML_SINGLE_QUOTED_SCALAR_STYLE, YAML_LITERAL_SCALAR_STYLE};
    yaml_event_t e;
    if (n > INT_MAX)
        return 0;
    return emit(w, yaml_scalar_event_initialize(&e, (const unsigned char *)anchor, NULL, (const unsigned char *)text, (int)n, 1, 1, styles[style]), &e);
}
EXPORT int kri_yaml_sequence(struct writer *w, const char *anchor, int flow)
{
    yaml_event_t e;
    return emit(w, yaml_sequence_start_event_initialize(&e, (const unsigned char *)anchor, NULL, 1, flow ? YAML_FLOW_SEQUENCE_STYLE : YAML_BLOCK_SEQUENCE_STYLE), &e);
}
EXPORT int kri_yaml_sequence_end(struct writer *w)
{
    yaml_event_t e;
    return emit(w, yaml_sequence_end_event_initialize(&e), &e);
}
EXPORT int kri_yaml_mapping(struct writer *w, const char *anchor, int flow)
{
    yaml_event_t e;
    return emit(w, yaml_mapping_start_event_initialize(&e, (const unsigned char *)anchor, NULL, 1, flow ? YAML_FLOW_MAPPING_STYLE : YAML_BLOCK_MAPPING_STYLE), &e);
}
EXPORT int kri_yaml_mapping_end(struct writer *w)
{
    yaml_event_t e;
    return emit(w, yaml_mapping_end_event_initialize(&e), &e);
}

/* The end of the stream; the length of the text, or 0 if that fails. */
EXPORT size_t kri_yaml_finish(struct writer *w)
{
    yaml_event_t e;
    return emit(w, yaml_stream_end_event_initialize(&e), &e) && yaml_emitter_flush(&w->emitter) ? w->n : 0;
}
EXPORT void kri_yaml_writer_copy(const struct writer *w, char *to) { memcpy(to, w->text, w->n); }
EXPORT const char *kri_yaml_writer_problem(const struct writer *w) { return w->emitter.problem ? w->emitter.problem : "no memory, or a text that is not UTF-8"; }
