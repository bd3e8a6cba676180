/* workspace.c - one block of memory, reused across calls: as much as the largest prompt needed. */
#include <stdlib.h>
#include "kernels/workspace.h"

static struct {
    void *p;
    int64_t size;
} workspace;

void *workspace_of(int64_t size)
{
    if (size > workspace.size) {
        free(workspace.p);
        workspace.p = aligned_alloc(PAGE, (size_t)(size + PAGE - 1) / PAGE * PAGE);
        workspace.size = workspace.p ? size : 0;
    }
    return size <= workspace.size ? workspace.p : NULL;
}
