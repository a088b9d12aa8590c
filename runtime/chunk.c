/* chunk.c -- mapping chunks and large objects, and the two-level table from addresses to them. */
#include "runtime/heap_private.h"

enum { SMALL_HEAP_BYTES = 4 * KRI_CHUNK_BYTES }; /* the core library, the reserve, and the first that a program gets */

size_t kri_large_mapping(size_t object_bytes)
{
    size_t page = kri_system_page_bytes();
    if (object_bytes > SIZE_MAX / 2)
        return SIZE_MAX;
    return (KRI_TREE_OFFSET + object_bytes + page - 1) & ~(page - 1);
}

struct kri_chunk *kri_chunk_map(struct kri_heap *heap, size_t object_bytes)
{
    size_t bytes = object_bytes ? kri_large_mapping(object_bytes) : KRI_CHUNK_BYTES;
    const struct kri_heap_config *source = &heap->config;
    struct kri_chunk *c = source->map ? source->map(source->memory_user, bytes, KRI_CHUNK_BYTES) : kri_system_map(bytes, KRI_CHUNK_BYTES);

    if (!c || (uintptr_t)c % KRI_CHUNK_BYTES)
        return NULL;
    /* Before the first touch. Not for the first chunks: a small program should stay small. */
    if (!source->map && (object_bytes ? object_bytes >= KRI_CHUNK_BYTES : heap->heap_bytes >= SMALL_HEAP_BYTES))
        kri_system_huge_pages(c, bytes);
    c->heap = heap;
    c->mapped = bytes;
    c->object_bytes = object_bytes;
    c->state = KRI_CHUNK_SWEPT;
    if (object_bytes)
        return c;
    c->marks[KRI_TREE_GRANULES] = 1; /* ends every search for a mark */
    kri_set_header(kri_chunk_tree(c), kri_header(KRI_CLASS_FREE, KRI_CHUNK_INDEX, 0));
    return c;
}

void kri_chunk_unmap(struct kri_chunk *c)
{
    if (c->shadow)
        kri_system_unmap(c->shadow, c->mapped);
    if (c->seen)
        kri_system_unmap(c->seen, KRI_TREE_GRANULES);
    const struct kri_heap_config *source = &c->heap->config;
    if (source->unmap)
        source->unmap(source->memory_user, c, c->mapped);
    else if (!source->map) /* a source that takes nothing back */
        kri_system_unmap(c, c->mapped);
}

static size_t unit_of(const void *p) { return (uintptr_t)p >> KRI_UNIT_SHIFT; }
static size_t units(const struct kri_chunk *c) { return (c->mapped + KRI_CHUNK_BYTES - 1) >> KRI_UNIT_SHIFT; }

/* The second level for UNIT, made if there is none. */
static kri_atomic *second_level(struct kri_chunk_table *t, size_t unit)
{
    kri_atomic *level1 = &t->level1[unit >> KRI_TABLE_BITS];
    kri_atomic *second = (kri_atomic *)kri_load_relaxed(level1); /* only writers change it, and they exclude each other */

    if (!second) {
        second = kri_system_map(KRI_TABLE_SIZE * sizeof *second, 0);
        if (second)
            kri_store_release(level1, (size_t)second); /* pairs with the acquire in kri_chunk_find */
    }
    return second;
}

bool kri_chunk_register(struct kri_chunk_table *t, struct kri_chunk *c)
{
    size_t first = unit_of(c), n = units(c);

    if ((first + n) >> (2 * KRI_TABLE_BITS))
        return false;
    for (size_t u = first; u < first + n; u++)
        if (!second_level(t, u))
            return false;
    for (size_t u = first; u < first + n; u++)
        /* Release: pairs with the acquire in kri_chunk_find; who finds C sees its head filled. */
        kri_store_release(&second_level(t, u)[u & (KRI_TABLE_SIZE - 1)], (size_t)c);
    return true;
}

void kri_chunk_unregister(struct kri_chunk_table *t, struct kri_chunk *c)
{
    size_t first = unit_of(c), n = units(c);
    for (size_t u = first; u < first + n; u++)
        kri_store_release(&second_level(t, u)[u & (KRI_TABLE_SIZE - 1)], 0);
}

void kri_chunk_table_free(struct kri_chunk_table *t)
{
    for (size_t i = 0; i < KRI_TABLE_SIZE; i++)
        kri_system_unmap((void *)kri_load_relaxed(&t->level1[i]), KRI_TABLE_SIZE * sizeof(kri_atomic));
}

/* The block of CHUNK's tree that granule OFFSET lies in, a cell or free. A node's header tells its index; if that is smaller
 * than the node's, the node is split, and its leftmost part's header was read (H1). */
static struct kri_cell *block_at(struct kri_chunk *chunk, uint32_t offset)
{
    char *node = (char *)kri_chunk_tree(chunk);
    unsigned k = KRI_CHUNK_INDEX;

    while (((struct kri_cell *)node)->buddy < k) {
        uint32_t left = kri_fib[k - 1];
        if (offset < left) {
            k--;
        } else {
            offset -= left;
            node += (size_t)left * KRI_GRANULE;
            k = k >= 2 ? k - 2 : 0;
        }
    }
    return (struct kri_cell *)node;
}

struct kri_cell *kri_find_cell(struct kri_heap *heap, uintptr_t word)
{
    struct kri_chunk *chunk = kri_chunk_find(&heap->table, word);
    struct kri_cell *c;

    if (!chunk || word < (uintptr_t)kri_chunk_tree(chunk))
        return NULL;
    uintptr_t offset = word - (uintptr_t)kri_chunk_tree(chunk);
    if (chunk->object_bytes) {
        c = kri_chunk_tree(chunk);
        return offset < chunk->object_bytes ? c : NULL;
    }
    if (offset >= (uintptr_t)KRI_TREE_GRANULES * KRI_GRANULE)
        return NULL;
    c = block_at(chunk, (uint32_t)offset / KRI_GRANULE);
    if (c->cls == KRI_CLASS_FREE || (chunk->state == KRI_CHUNK_UNSWEPT && !kri_marked(c)))
        return NULL;
    return c;
}
