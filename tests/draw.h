/* draw.h - the pseudo-random numbers of C test programs: SplitMix64 from 1, as
 * lib/sluice/generate/sampler.py has it; 32 bits of each. */
#include <stdint.h>

static uint32_t draw(void)
{
    static uint64_t state = 1;
    uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (uint32_t)(z ^ z >> 31);
}
