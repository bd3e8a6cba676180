/* What happens at each event of the milter protocol. */
#include <libmilter/mfapi.h>

typedef struct {
    const char *socket;     /* of the worker */
    int deadline;           /* seconds for one verdict */
    int monitor;            /* log what was found, change nothing */
    int skip_authenticated; /* mail of senders that logged in is not judged */
} milter_settings;

extern milter_settings settings;
extern const struct smfiDesc milter_events;
