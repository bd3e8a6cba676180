/* pyconfig.h - nothing of how an interpreter was built matters to the stable ABI. */
