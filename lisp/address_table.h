/* address_table.h -- from the addresses of cells to small numbers. Cells never move, so the printer and the reader use it to
 * find shared and circular structure. The table lies in a string cell: it may be dropped at any time without being freed,
 * and it keeps no cell alive. */
#ifndef KRI_LISP_ADDRESS_TABLE_H
#define KRI_LISP_ADDRESS_TABLE_H

#include "lisp/vm.h"

struct kri_address_entry {
    uintptr_t key; /* 0: free */
    intptr_t number;
};
struct kri_address_table {
    kr_value cell;
    struct kri_address_entry *at;
    size_t size, count; /* size: a power of two */
};

static inline struct kri_address_entry *kri_address_place(struct kri_address_entry *at, size_t size, uintptr_t key)
{
    /* Neighbours in memory stay neighbours: what was made together is looked up together. */
    size_t i = ((((uint64_t)key >> 8) * 0x9e3779b97f4a7c15u >> 32) + (key >> 4 & 15)) & (size - 1);
    while (at[i].key != 0 && at[i].key != key)
        i = (i + 1) & (size - 1);
    return &at[i];
}

/* The entry of V's address, or NULL. */
static inline struct kri_address_entry *kri_address_find(const struct kri_address_table *t, kr_value v)
{
    struct kri_address_entry *e = t->size ? kri_address_place(t->at, t->size, v.w) : NULL;
    return e && e->key ? e : NULL;
}

/* The entry of V's address, made with number 0 if new. May-gc; entries move when the table grows. */
static inline struct kri_address_entry *kri_address_enter(struct kri_worker *w, struct kri_address_table *t, kr_value v)
{
    if ((t->count + 1) * 2 > t->size) {
        size_t size = t->size ? t->size * 2 : 64;
        kr_value cell = kri_make_string(w, size * sizeof(struct kri_address_entry));
        struct kri_address_entry *at = (struct kri_address_entry *)kri_string_of(cell)->byte;
        for (size_t i = 0; i < t->size; i++)
            if (t->at[i].key)
                *kri_address_place(at, size, t->at[i].key) = t->at[i];
        t->cell = cell;
        t->at = at;
        t->size = size;
    }
    struct kri_address_entry *e = kri_address_place(t->at, t->size, v.w);
    if (e->key == 0) {
        e->key = v.w;
        t->count++;
    }
    return e;
}

#endif
