/* events.h - the settings of mail-milter, and its callbacks for the milter protocol. */
#include <libmilter/mfapi.h>

typedef struct {
    const char *socket;     /* of the worker */
    int deadline;           /* seconds for one verdict */
    int monitor;            /* log the verdict, change nothing */
    int explain;            /* add X-Spam-Explain */
    int skip_authenticated; /* messages of senders that logged in are not classified */
} milter_settings;

extern milter_settings settings;
extern const struct smfiDesc milter_events;
