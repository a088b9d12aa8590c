/* sweep.c -- turning a marked chunk's dead cells into maximal free blocks.
 *
 * The tree is descended left to right with a cursor on the next mark: a node that ends before it is free as a whole and becomes
 * one block, whatever it was split into (this is how buddies merge); a node that starts at it and whose index the mark names is
 * a live cell; a second cursor finds where live conses lie side by side, and passes whole nodes of them. So each mark byte is
 * looked at once or twice, eight at a time where they are alike, and live cells are not touched.
 * The marks are cleared behind it: no collection has to. */
#include <assert.h>

#include "runtime/heap_private.h"

struct sweep {
    char *tree;
    const unsigned char *marks;
    uint32_t next;              /* the first marked granule at or behind where we are; KRI_TREE_GRANULES: none */
    uint32_t conses;            /* up to here, all that is marked from the last place we asked is conses */
    struct kri_free_list *found;
    size_t free;
};

/* The thread sanitizer would take most of its time for these bytes. Who sweeps a chunk owns its marks; that markers were done with
 * them is seen elsewhere. */
#ifdef KRI_TSAN
#define UNWATCHED KRI_NO_SANITIZE
#else
#define UNWATCHED
#endif

static UNWATCHED void clear_marks(unsigned char *marks)
{
#ifdef KRI_TSAN
    for (volatile unsigned char *m = marks; m < marks + KRI_TREE_GRANULES; m++)
        *m = 0;
#else
    memset(marks, 0, KRI_TREE_GRANULES);
#endif
}

/* The mark behind the last granule is always set and ends the search. */
static UNWATCHED uint32_t next_mark(const unsigned char *marks, uint32_t i)
{
    uint64_t a, b, c, d;

    for (;; i += 32) {
        memcpy(&a, marks + i, 8);
        if (a)
            return i + (uint32_t)__builtin_ctzll(a) / 8;
        memcpy(&b, marks + i + 8, 8);
        memcpy(&c, marks + i + 16, 8);
        memcpy(&d, marks + i + 24, 8);
        if (b)
            return i + 8 + (uint32_t)__builtin_ctzll(b) / 8;
        if (c)
            return i + 16 + (uint32_t)__builtin_ctzll(c) / 8;
        if (d)
            return i + 24 + (uint32_t)__builtin_ctzll(d) / 8;
    }
}

_Static_assert(KRI_TREE_OFFSET - offsetof(struct kri_chunk, marks) > KRI_TREE_GRANULES + 40, "next_mark may look past the end");

/* The end of the conses that lie side by side from granule I on. (The mark behind the last granule may count: a node never
 * reaches that far.) */
static UNWATCHED uint32_t conses_end(const unsigned char *marks, uint32_t i)
{
    static const uint64_t conses = 0x0101010101010101u;
    uint64_t m;

    for (;; i += 8) {
        memcpy(&m, marks + i, 8);
        if ((m ^= conses) != 0)
            return i + (uint32_t)__builtin_ctzll(m) / 8;
    }
}

static void sweep_node(struct sweep *s, uint32_t offset, unsigned k)
{
    while (s->next < offset + kri_fib[k]) {
        uint32_t end = offset + kri_fib[k];
        if (s->next == offset) {
            if (s->conses <= offset)
                s->conses = conses_end(s->marks, offset);
            if (end <= s->conses || s->marks[offset] == k + 1) { /* live all over */
                s->next = end < s->conses ? end : next_mark(s->marks, end);
                return;
            }
        }
        assert(k > 0); /* else a mark is no cell's */
        sweep_node(s, offset, k - 1);
        offset += kri_fib[k - 1];
        k = k >= 2 ? k - 2 : 0;
    }
    struct kri_cell *c = (struct kri_cell *)(s->tree + (size_t)offset * KRI_GRANULE);
    kri_set_header(c, kri_header(KRI_CLASS_FREE, k, 0));
    kri_list_append(&s->found[k], c);
    s->free += kri_fib[k];
}

size_t kri_sweep_chunk(struct kri_chunk *chunk, struct kri_free_list found[KRI_SIZES])
{
    struct sweep s = {
        .tree = (char *)kri_chunk_tree(chunk),
        .marks = chunk->marks,
        .next = chunk->touched ? next_mark(chunk->marks, 0) : KRI_TREE_GRANULES,
        .found = found,
    };

    sweep_node(&s, 0, KRI_CHUNK_INDEX);
    if (chunk->touched) {
        clear_marks(chunk->marks);
        chunk->touched = 0;
    }
    return s.free;
}
