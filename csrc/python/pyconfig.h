/* pyconfig.h - empty: the stable ABI does not depend on how an interpreter was built. */
