# A mail was moved to the folder Spam; imapsieve.conf, beside this file, says when this is run.
require ["vnd.dovecot.pipe", "copy", "imapsieve", "variables", "vnd.dovecot.environment"];

pipe :copy :try "classify" ["--learn", "yes"];

# Where a worker answers by recipient (classify --listen --learned-in DIR, mail-filter --learned-by recipient), learn in its file:
# pipe :copy :try "classify" ["--learn", "yes", "--calibration",
#                             "/var/lib/sluice/learned/${env.vnd.dovecot.username}/spam.calibration"];
