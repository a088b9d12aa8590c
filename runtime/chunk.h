/* chunk.h -- 2 MB aligned chunks and large objects, and the table that finds them by any address.
 *
 * A chunk: head, mark bytes (one a granule), and at KRI_TREE_OFFSET the Fibonacci tree. A large object has the same head in a
 * mapping of its own (aligned to 2 MB, whole pages) and its only cell at KRI_TREE_OFFSET: so a cell's chunk is its address
 * with 21 bits cleared, and its mark byte is found alike, whatever its size. */
#ifndef KRI_RUNTIME_CHUNK_H
#define KRI_RUNTIME_CHUNK_H

#include "runtime/atomic.h"
#include "runtime/value.h"

enum {
    KRI_UNIT_SHIFT = 21,
    KRI_TREE_OFFSET = 80 << 10,
    KRI_TREE_GRANULES = 75025,
    KRI_TABLE_BITS = 13,         /* each of two levels: 47 address bits = 13 + 13 + 21 */
    KRI_TABLE_SIZE = 1 << KRI_TABLE_BITS,
};

enum kri_chunk_state {
    KRI_CHUNK_SWEPT,
    KRI_CHUNK_UNSWEPT,
    KRI_CHUNK_PERMANENT, /* every cell marked for good; what is free stays so and is in no list */
};

struct kri_chunk {
    struct kri_chunk *next;          /* heap->chunks, heap->large, or their permanent likes */
    struct kri_chunk *next_unswept;  /* heap->unswept */
    struct kri_heap *heap;
    size_t mapped;                   /* bytes of the mapping: 2 MB, or a large object's pages */
    size_t object_bytes;             /* a large object's cell, header included; 0: a tree chunk */
    unsigned char *shadow;           /* store-checking builds: copy of the cells as of the last collection */
    unsigned char *seen;             /* and for each granule whether the cell that starts there has one */
    uint8_t state;                   /* enum kri_chunk_state: written under base_lock or with the world stopped */
    unsigned char touched;           /* some mark byte is set; by byte stores of the markers */
    _Alignas(64) unsigned char marks[];
};
_Static_assert(sizeof(struct kri_chunk) + KRI_TREE_GRANULES + 8 <= KRI_TREE_OFFSET, "head and marks lie before the tree");
_Static_assert(KRI_TREE_OFFSET + (size_t)KRI_TREE_GRANULES * 24 <= (size_t)1 << KRI_UNIT_SHIFT, "the tree ends in its chunk");

/* Address -> chunk, for every 2 MB unit a chunk or large object covers. */
struct kri_chunk_table {
    kri_atomic level1[KRI_TABLE_SIZE];   /* of kri_atomic[KRI_TABLE_SIZE]: each a struct kri_chunk * or 0 */
};

static inline struct kri_chunk *kri_chunk_of(const void *cell)
{
    return (struct kri_chunk *)((uintptr_t)cell & ~(((uintptr_t)1 << KRI_UNIT_SHIFT) - 1));
}
static inline struct kri_cell *kri_chunk_tree(struct kri_chunk *c)
{
    return (struct kri_cell *)((char *)c + KRI_TREE_OFFSET);
}

/* The chunk or large object that covers ADDRESS, or NULL. Any thread; what it names may be gone unless the caller keeps
 * collections away. */
static inline struct kri_chunk *kri_chunk_find(const struct kri_chunk_table *t, uintptr_t address)
{
    if (address >> (KRI_UNIT_SHIFT + 2 * KRI_TABLE_BITS))
        return NULL;
    /* Acquire: pairs with the release in kri_chunk_register; a reader that finds a second level or a chunk sees it filled. */
    const kri_atomic *second = (const kri_atomic *)kri_load_acquire(&t->level1[address >> (KRI_UNIT_SHIFT + KRI_TABLE_BITS)]);
    if (!second)
        return NULL;
    return (struct kri_chunk *)kri_load_acquire(&second[address >> KRI_UNIT_SHIFT & (KRI_TABLE_SIZE - 1)]);
}

/* A new chunk whose tree is one free block, or a large object for a cell of OBJECT_BYTES; registered in no table. NULL when
 * the system has no memory. */
struct kri_chunk *kri_chunk_map(struct kri_heap *heap, size_t object_bytes);
void kri_chunk_unmap(struct kri_chunk *c);
/* Bytes that kri_chunk_map will map for a large cell. */
size_t kri_large_mapping(size_t object_bytes);
/* Enter a chunk in its heap's table, remove it. Writers hold base_lock or have the world stopped. False: no memory. */
bool kri_chunk_register(struct kri_chunk_table *t, struct kri_chunk *c);
void kri_chunk_unregister(struct kri_chunk_table *t, struct kri_chunk *c);
void kri_chunk_table_free(struct kri_chunk_table *t);

/* ---- the system (system.c) ---- */
void *kri_system_map(size_t bytes, size_t alignment);   /* zeroed memory, or NULL */
void kri_system_unmap(void *p, size_t bytes);
void kri_system_huge_pages(void *p, size_t bytes);      /* asks for them */
size_t kri_system_page_bytes(void);
size_t kri_system_memory_bytes(void);                   /* physical memory, container limits respected */
unsigned kri_system_cores(void);
uint64_t kri_system_now(void);                          /* CLOCK_MONOTONIC, nanoseconds */
/* membarrier(2), private expedited. Prepare registers the process once and says whether it is there; the call makes every
 * running thread of the process pass a full barrier. */
bool kri_system_membarrier_prepare(void);
void kri_system_membarrier(void);

#endif
