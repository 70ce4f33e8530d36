/* The interfaces of this machine. */
#include <bypath.h>
#include <stdio.h>

int main(void) {
    struct bypath_interface list[64];
    size_t count = 0;
    bypath_error error;
    if (bypath_interfaces(list, 64, &count, &error) != BYPATH_OK) {
        fprintf(stderr, "interfaces: %s\n", error.message);
        return 1;
    }
    for (size_t i = 0; i < count && i < 64; i++) {
        char mac[BYPATH_MAC_TEXT];
        bypath_mac_format(list[i].mac, mac, NULL);
        printf("%3u %-15s %s mtu %u %s\n", (unsigned)list[i].index, list[i].name, mac, (unsigned)list[i].mtu,
               list[i].up ? "up" : "down");
    }
    return 0;
}
