# A mail was moved out of the folder Spam; imapsieve.conf, beside this file, says when this is run.
require ["vnd.dovecot.pipe", "copy", "imapsieve", "environment", "variables", "vnd.dovecot.environment"];

# Who empties the folder does not say that the mail is wanted.
if environment :is "imap.mailbox" ["Trash", "Deleted", "Deleted Items"] {
  stop;
}

pipe :copy :try "classify" ["--learn", "no"];

# Where a worker answers by recipient (classify --listen --learned-in DIR, mail-filter --learned-by recipient), learn in its file:
# pipe :copy :try "classify" ["--learn", "no", "--calibration",
#                             "/var/lib/sluice/learned/${env.vnd.dovecot.username}/spam.calibration"];
