# What is marked goes to Spam, for those recipients who want it: the mail stays theirs.
require "fileinto";
if header :is "X-Spam-Flag" "YES" {
    fileinto "Spam";
}
