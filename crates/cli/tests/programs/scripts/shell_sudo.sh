# sudo as whoever runs this: root becomes another user and comes back, anybody else is refused. Then a program whose
# file says that it runs as root (the test made it).
grep -c bypath_preload /proc/self/maps >"$LOADED"
sudo -n true
echo "sudo: $?"
sudo -n -u nobody id -un
echo "sudo: $?"
sudo -n -u nobody sh -c 'exit 9'
echo "sudo: $?"
echo text | sudo -n -u nobody cat | tr a-z A-Z
sudo -n -u nobody sh -c 'kill -TERM $$'
echo "sudo: $?"
sudo -n --no-such-option
echo "sudo: $?"
[ ! -e ./setuid-id ] || ./setuid-id -u
