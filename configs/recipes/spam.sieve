# Sieve (Dovecot's Pigeonhole): mail goes through classify, and what it calls spam into a folder of its own. dovecot.conf, beside this
# file, switches on what it needs.
#
# What happens when the filter fails (classify is not there, is killed, has no memory or disk): "filter" as a test is false,
# the mail is as it was, and the script goes on; Dovecot's log says why. The mail is delivered without our headers.
# When classify runs but has no verdict (no model, no answer within 60 s), the mail comes with
# "X-Spam-Status: unchecked; reason=WORD". If the mailbox cannot be written, dovecot-lda ends with 75, LMTP answers 4xx.

require ["fileinto", "mailbox", "imap4flags", "variables", "vnd.dovecot.environment", "vnd.dovecot.filter"];

if not filter "classify" ["--pass-through"] {
  # Here is what shall be done with a mail that was not looked at; for instance:  addflag "$Unchecked";
}

# The quick form, a resident worker (configs/systemd) instead of a process that maps the model for each mail. Its socket must
# be open to the users (SocketMode=0666 in sluice-classify.socket), else each mail takes a process as before. It answers by
# what the user learned if the worker has --learned-in DIR, and the user's --learn has --calibration DIR/USER/spam.calibration;
# else by the worker's own --calibration.
# if not filter "mail-filter" ["--deliver", "stdout", "--log", "-", "--socket", "/run/sluice/classify.sock", "--learned-by", "recipient", "--", "${env.vnd.dovecot.username}"] {}

if header :is "X-Spam-Flag" "YES" {
  fileinto :create "Spam";
}
