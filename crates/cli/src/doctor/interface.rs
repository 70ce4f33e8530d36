//! An interface as the kernel tells of it by netlink, and in `/sys/class/net` and `/proc/net`: state, MTU, queues, who
//! else listens, what was lost.

use super::{Finding, Root, word};
use crate::output::printable;
use bypath_sys::{Errno, netif};
use serde::Serialize;

/// What an interface is.
#[derive(Clone, Debug, Serialize)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its number.
    pub index: u32,
    /// Its address, in the usual notation.
    pub mac: String,
    /// Octets behind the Ethernet header that a frame may have.
    pub mtu: u32,
    /// Mbit/s, if it tells.
    pub speed: Option<u32>,
    #[serde(skip)]
    told: netif::Interface,
}

impl Interface {
    /// The interface of this name in the caller's network namespace.
    ///
    /// # Errors
    /// A text that says what is wrong, and which interfaces there are.
    pub fn find(name: &str) -> Result<Interface, String> {
        let told = netif::by_name(name).map_err(|e| {
            let all = netif::list().unwrap_or_default();
            let names = all.iter().map(|i| printable(&i.name)).collect::<Vec<_>>().join(", ");
            let name = printable(name);
            match e {
                Errno::NODEV => format!("{name}: no such interface; there are: {names}"),
                Errno::NAMETOOLONG => {
                    let most = netif::LONGEST_NAME;
                    format!("{name}: an interface's name has {most} characters at most; there are: {names}")
                }
                e => format!("{name}: the kernel cannot be asked about interfaces: {e}"),
            }
        })?;
        Ok(Interface {
            name: told.name.clone(),
            index: told.index,
            mac: told.mac.map(|octet| format!("{octet:02x}")).join(":"),
            mtu: told.mtu,
            speed: netif::speed(name),
            told,
        })
    }

    /// The interface in one line.
    pub fn line(&self) -> String {
        let speed = self.speed.map_or(String::new(), |s| format!(", {s} Mbit/s"));
        format!("{}: number {}, {}, MTU {}{speed}", printable(&self.name), self.index, self.mac, self.mtu)
    }
}

/// Whether `/sys` shows the network namespace that has these interfaces: it shows that of who mounted it.
pub fn sees(root: &Root, all: &[netif::Interface]) -> bool {
    let shown = root.names("/sys/class/net");
    let number = |name: &str| root.number::<u32>(format!("/sys/class/net/{name}/ifindex"));
    // Some entries, such as bonding_masters, are no interfaces.
    shown.iter().filter(|name| number(name).is_some()).count() == all.len()
        && all.iter().all(|i| {
            let mac = i.mac.map(|octet| format!("{octet:02x}")).join(":");
            let shown = root.text(format!("/sys/class/net/{}/address", i.name));
            number(&i.name) == Some(i.index)
                && shown.is_none_or(|shown| shown == mac || shown.len() != mac.len())
        })
}

/// What was found about the interface. `sys`: whether `/sys` shows its network namespace.
pub fn findings(root: &Root, interface: &Interface, sys: bool) -> Vec<Finding> {
    let mut found = vec![
        kind(interface),
        state(interface),
        mtu(interface),
        queueing(interface),
        send_queue(interface),
        others(root, interface),
    ];
    if !sys {
        let elsewhere = |check| {
            Finding::unknown(check, "/sys shows another network namespace")
                .remedy("mount -t sysfs sysfs /sys")
        };
        found.extend(["deferred-interrupts", "packet-steering", "losses", "interrupts"].map(elsewhere));
        return found;
    }
    let at = |file: &str| format!("/sys/class/net/{}/{file}", interface.name);
    found.push(flush(root, &at("gro_flush_timeout")));
    found.push(steering(root, &at("queues")));
    found.push(lost(root, &at("statistics")));
    found.extend(interrupts(root, &at("device/msi_irqs")));
    found
}

fn kind(interface: &Interface) -> Finding {
    if interface.told.is_ethernet() {
        return Finding::good("kind", "carries Ethernet frames");
    }
    Finding::hurts("kind", format!("hardware type {}, not Ethernet", interface.told.hardware))
        .why("there are no Ethernet headers, so no EtherType, MAC address or VLAN tag")
}

fn state(interface: &Interface) -> Finding {
    match (interface.told.is_up(), interface.told.carrier) {
        (false, _) => Finding::hurts("state", "down")
            .why("nothing can be sent or received")
            .remedy(format!("ip link set {} up", word(&interface.name))),
        (true, Some(false)) => Finding::hurts("state", "up, without carrier")
            .why("there is no neighbour: cable, switch port, or the other end of the pair is down"),
        (true, _) => Finding::good("state", "up"),
    }
}

fn mtu(interface: &Interface) -> Finding {
    let found = format!("{} octets behind the header", interface.mtu);
    if interface.mtu >= 8000 {
        return Finding::good("mtu", found);
    }
    Finding::note("mtu", found)
        .why(
            "longer frames are refused; jumbo frames need it raised on both ends and on all switches between",
        )
        .remedy(format!("ip link set {} mtu 9000", word(&interface.name)))
}

/// Disciplines that send at once, or in order, as fast as the device can.
const PLAIN_QUEUES: [&str; 5] = ["noqueue", "pfifo_fast", "mq", "pfifo", "bfifo"];

fn queueing(interface: &Interface) -> Finding {
    let name = interface.told.queueing.as_str();
    match name {
        "" => Finding::unknown("queueing", "the kernel does not tell"),
        "noop" => Finding::unknown("queueing", "none while the interface is down"),
        _ if PLAIN_QUEUES.contains(&name) => Finding::good("queueing", name),
        _ => Finding::note("queueing", name)
            .why("the discipline may delay, drop or reorder what is sent; bypath's rings can go around it (qdisc bypass)")
            .remedy(format!("tc qdisc replace dev {} root pfifo_fast", word(&interface.name))),
    }
}

fn send_queue(interface: &Interface) -> Finding {
    match interface.told.send_queue {
        _ if interface.told.queueing == "noqueue" => Finding::good("send-queue", "not needed"),
        0 => Finding::note("send-queue", "none").why("a frame that the device cannot take at once is lost"),
        n if n < 1000 => Finding::hurts("send-queue", format!("{n} frames"))
            .why("a burst longer than this is lost before it reaches the wire")
            .remedy(format!("ip link set {} txqueuelen 1000", word(&interface.name))),
        n => Finding::good("send-queue", format!("{n} frames")),
    }
}

fn flush(root: &Root, file: &str) -> Finding {
    match root.number::<u64>(file) {
        None => Finding::unknown("deferred-interrupts", "the kernel does not tell"),
        Some(0) => Finding::good("deferred-interrupts", "off"),
        Some(ns) => Finding::hurts(
            "deferred-interrupts",
            format!("frames may wait {ns} ns for more (gro_flush_timeout)"),
        )
        .why("a lone frame is delivered only when the time is over")
        .remedy(format!("echo 0 > {}", word(file))),
    }
}

fn steering(root: &Root, queues: &str) -> Finding {
    let steered: Vec<_> = root
        .names(queues)
        .into_iter()
        .filter(|q| {
            let mask = root.text(format!("{queues}/{q}/rps_cpus"));
            mask.is_some_and(|mask| mask.chars().any(|c| c != '0' && c != ','))
        })
        .collect();
    if steered.is_empty() {
        return Finding::good("packet-steering", "off");
    }
    Finding::note("packet-steering", format!("on for {} (rps_cpus)", steered.join(", ")))
        .why("frames are handed to another processor, which has to be woken first")
        .remedy(format!("echo 0 > {}", word(&format!("{queues}/{}/rps_cpus", steered[0]))))
}

fn lost(root: &Root, statistics: &str) -> Finding {
    const COUNTERS: [&str; 6] =
        ["rx_dropped", "rx_missed_errors", "rx_over_errors", "rx_crc_errors", "tx_dropped", "tx_errors"];
    let counts: Vec<_> = COUNTERS
        .iter()
        .filter_map(|name| Some((name, root.number::<u64>(format!("{statistics}/{name}"))?)))
        .collect();
    if counts.is_empty() {
        return Finding::unknown("losses", "the kernel does not tell");
    }
    let text: Vec<_> = counts.iter().filter(|(_, n)| *n > 0).map(|(name, n)| format!("{name} {n}")).collect();
    if text.is_empty() {
        return Finding::good("losses", "none since the interface was made");
    }
    Finding::note("losses", text.join(", ")).why(
        "since the interface was made; frames of protocols that nobody listens for count as dropped, too",
    )
}

/// Packet sockets of other programs (`/proc/net/packet`): two on one EtherType both get every frame.
fn others(root: &Root, interface: &Interface) -> Finding {
    let Some(table) = root.text("/proc/net/packet") else {
        return Finding::unknown("other-listeners", "/proc/net/packet cannot be read");
    };
    let sockets: Vec<_> = table
        .lines()
        .skip(1)
        .filter_map(|line| {
            let mut fields = line.split_whitespace().skip(3);
            let protocol = u16::from_str_radix(fields.next()?, 16).ok()?;
            let index: u32 = fields.next()?.parse().ok()?;
            (protocol != 0 && (index == 0 || index == interface.index)).then_some(protocol)
        })
        .collect();
    if sockets.is_empty() {
        return Finding::good("other-listeners", "none");
    }
    let list: Vec<_> = sockets
        .iter()
        .map(|p| if *p == 3 { "every EtherType".to_owned() } else { format!("EtherType {p:#06x}") })
        .collect();
    Finding::note("other-listeners", format!("packet sockets: {}", list.join(", ")))
        .why("each frame is delivered to each of them, which costs the sender on lo and veth, and the receiver elsewhere")
}

/// Where the device's interrupts go, if it has several.
fn interrupts(root: &Root, msi: &str) -> Option<Finding> {
    let places: Vec<_> = root
        .names(msi)
        .iter()
        .filter_map(|irq| Some((irq.clone(), root.text(format!("/proc/irq/{irq}/smp_affinity_list"))?)))
        .collect();
    let (first, _) = places.first()?.clone();
    let wide = places.iter().filter(|(_, cpus)| cpus.contains(['-', ','])).count();
    if wide == 0 {
        return Some(Finding::good("interrupts", format!("{}, each pinned to a processor", places.len())));
    }
    Some(
        Finding::note("interrupts", format!("{wide} of {} may go to several processors", places.len()))
            .why("an interrupt that moves finds cold caches, and may land on the processor that spins")
            .remedy(format!("echo CPU > /proc/irq/{first}/smp_affinity_list (and stop irqbalance)")),
    )
}

#[cfg(test)]
mod tests {
    use super::super::State::*;
    use super::super::tests::{Tree, verdict};
    use super::*;

    fn interface() -> Interface {
        let told = netif::Interface {
            index: 7,
            name: "eth7".to_owned(),
            mac: [2, 0, 0, 0, 0, 7],
            mtu: 9000,
            flags: 0x1003,
            hardware: 1,
            carrier: Some(true),
            queueing: "pfifo_fast".to_owned(),
            send_queue: 1000,
        };
        let (name, mac) = (told.name.clone(), "02:00:00:00:00:07".to_owned());
        Interface { name, index: 7, mac, mtu: told.mtu, speed: None, told }
    }

    /// Files of interface 7, or others in their place.
    fn tree(name: &str, more: &[(&str, &str)]) -> Tree {
        const USUAL: [(&str, &str); 6] = [
            ("sys/class/net/eth7/ifindex", "7"),
            ("sys/class/net/eth7/address", "02:00:00:00:00:07"),
            ("sys/class/net/eth7/gro_flush_timeout", "0"),
            ("sys/class/net/eth7/queues/rx-0/rps_cpus", "00000000,00000000"),
            ("sys/class/net/eth7/statistics/rx_dropped", "0"),
            ("proc/net/packet", "sk RefCnt Type Proto Iface R Rmem User Inode\n"),
        ];
        let usual = USUAL.iter().filter(|(path, _)| more.iter().all(|(other, _)| other != path));
        Tree::new(name, &usual.chain(more).copied().collect::<Vec<_>>())
    }

    #[test]
    fn an_ordinary_interface_is_good() {
        let found = findings(&tree("ordinary", &[]).root(), &interface(), true);
        assert!(found.iter().all(|f| f.state == Good), "{found:?}");
    }

    #[test]
    fn each_trouble_is_found() {
        let bad = [
            ("sys/class/net/eth7/gro_flush_timeout", "20000"),
            ("sys/class/net/eth7/queues/rx-0/rps_cpus", "00000000,00000003"),
            ("sys/class/net/eth7/statistics/rx_dropped", "5"),
            ("sys/class/net/eth7/device/msi_irqs/41", "msix"),
            ("proc/irq/41/smp_affinity_list", "0-3"),
            (
                "proc/net/packet",
                "sk RefCnt Type Proto Iface R Rmem User Inode\n\
                 00000000b5c4e2a1 3      3    88b5   7     1 0      0      123\n\
                 00000000b5c4e2a2 3      3    0003   0     1 0      0      124\n\
                 00000000b5c4e2a3 3      3    88b6   8     1 0      0      125\n",
            ),
        ];
        let mut eth7 = interface();
        (eth7.mtu, eth7.told.hardware, eth7.told.flags) = (1500, 512, 0x1002);
        (eth7.told.send_queue, eth7.told.queueing) = (10, "fq_codel".to_owned());
        let found = findings(&tree("bad", &bad).root(), &eth7, true);
        for (check, state) in [
            ("kind", Hurts),
            ("state", Hurts),
            ("mtu", Note),
            ("queueing", Note),
            ("send-queue", Hurts),
            ("deferred-interrupts", Hurts),
            ("packet-steering", Note),
            ("losses", Note),
            ("other-listeners", Note),
            ("interrupts", Note),
        ] {
            assert_eq!(verdict(&found, check).0, state, "{check}");
        }
        let others = &found.iter().find(|f| f.check == "other-listeners").unwrap().found;
        assert_eq!(others, "packet sockets: EtherType 0x88b5, every EtherType");
    }

    #[test]
    fn a_dead_wire_is_no_down_interface() {
        let mut eth7 = interface();
        eth7.told.carrier = Some(false);
        assert_eq!(verdict(&findings(&tree("wire", &[]).root(), &eth7, true), "state"), (Hurts, None));
    }

    #[test]
    fn files_of_another_network_namespace_are_not_believed() {
        let here = |change: fn(&mut netif::Interface)| {
            let mut told = interface().told;
            change(&mut told);
            sees(&tree("elsewhere", &[]).root(), &[told])
        };
        assert!(here(|_| {}));
        assert!(!here(|i| i.index = 8));
        assert!(!here(|i| i.mac[5] = 8));
        assert!(!here(|i| i.name = "eth8".to_owned()));
        let told = interface().told;
        assert!(!sees(&tree("more", &[]).root(), &[told.clone(), told]));
        let found = findings(&tree("unseen", &[]).root(), &interface(), false);
        assert_eq!(verdict(&found, "losses").0, Unknown);
    }

    #[test]
    fn what_an_interface_is_called_is_neither_a_command_nor_steers_a_terminal() {
        let mut other = interface();
        other.name = "x;reboot".to_owned();
        (other.mtu, other.told.flags) = (1500, 0x1002);
        let found = findings(
            &tree("called", &[("sys/class/net/x;reboot/gro_flush_timeout", "9")]).root(),
            &other,
            true,
        );
        for (check, remedy) in [
            ("state", "ip link set 'x;reboot' up"),
            ("mtu", "ip link set 'x;reboot' mtu 9000"),
            ("deferred-interrupts", "echo 0 > '/sys/class/net/x;reboot/gro_flush_timeout'"),
        ] {
            assert_eq!(verdict(&found, check).1, Some(remedy));
        }
        other.name = "\x1b[41mX\u{202e}".to_owned();
        assert!(other.line().starts_with("?[41mX?: number 7"), "{}", other.line());
        let error = Interface::find("\x1b[41mX").unwrap_err();
        assert!(error.starts_with("?[41mX: no such interface"), "{error}");
    }

    #[test]
    fn names_that_are_none() {
        let error = Interface::find("no-such-device").unwrap_err();
        assert!(error.starts_with("no-such-device: no such interface; there are: "), "{error}");
        let error = Interface::find("a-name-of-16-oct").unwrap_err();
        assert!(error.contains("has 15 characters at most"), "{error}");
    }
}
