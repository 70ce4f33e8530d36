//! An interface as `/sys/class/net` and `/proc/net` show it: state, MTU, queues, who else listens, what was lost.

use super::{Finding, Root};
use serde::Serialize;

/// IFF_UP of netdevice(7).
const UP: u32 = 1;
/// ARPHRD_ETHER and ARPHRD_LOOPBACK of linux/if_arp.h: devices that carry Ethernet frames.
const ETHERNET_LIKE: [u32; 2] = [1, 772];

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
}

impl Interface {
    /// The interface of this name in the caller's network namespace.
    ///
    /// # Errors
    /// A text that says what is wrong, and which interfaces there are.
    pub fn find(root: &Root, name: &str) -> Result<Interface, String> {
        let there_are = || format!("there are: {}", root.names("/sys/class/net").join(", "));
        if name.is_empty() || name.len() > 15 || name.contains('/') || name == "." || name == ".." {
            return Err(format!(
                "{name:?} cannot be an interface (a name has 1 to 15 characters); {}",
                there_are()
            ));
        }
        let place = format!("/sys/class/net/{name}");
        let number = |file: &str| root.number::<u32>(format!("{place}/{file}"));
        let Some(index) = number("ifindex") else {
            return Err(format!("{name}: no such interface; {}", there_are()));
        };
        Ok(Interface {
            index,
            mac: root.text(format!("{place}/address")).unwrap_or_default(),
            mtu: number("mtu").unwrap_or(0),
            speed: number("speed"),
            name: name.to_owned(),
        })
    }

    /// The interface in one line.
    pub fn line(&self) -> String {
        let speed = self.speed.map_or(String::new(), |s| format!(", {s} Mbit/s"));
        format!("{}: number {}, {}, MTU {}{speed}", self.name, self.index, self.mac, self.mtu)
    }
}

/// What was found about the interface.
pub fn findings(root: &Root, interface: &Interface) -> Vec<Finding> {
    let place = format!("/sys/class/net/{}", interface.name);
    let at = |file: &str| format!("{place}/{file}");
    let mut found = vec![
        kind(root, &at("type")),
        state(root, interface, &at("flags"), &at("carrier")),
        mtu(interface),
        send_queue(root, interface, &at("tx_queue_len")),
        flush(root, &at("gro_flush_timeout")),
        steering(root, &at("queues")),
        lost(root, &at("statistics")),
        others(root, interface),
    ];
    found.extend(interrupts(root, &at("device/msi_irqs")));
    found
}

fn kind(root: &Root, file: &str) -> Finding {
    match root.number::<u32>(file) {
        Some(kind) if ETHERNET_LIKE.contains(&kind) => Finding::good("kind", "carries Ethernet frames"),
        Some(kind) => Finding::hurts("kind", format!("hardware type {kind}, not Ethernet"))
            .why("there are no Ethernet headers, so no EtherType, MAC address or VLAN tag"),
        None => Finding::unknown("kind", "the kernel does not tell"),
    }
}

fn state(root: &Root, interface: &Interface, flags: &str, carrier: &str) -> Finding {
    let flags = root.text(flags).and_then(|text| u32::from_str_radix(text.trim_start_matches("0x"), 16).ok());
    match (flags, root.number::<u32>(carrier)) {
        (Some(flags), _) if flags & UP == 0 => Finding::hurts("state", "down")
            .why("nothing can be sent or received")
            .remedy(format!("ip link set {} up", interface.name)),
        (Some(_), Some(0)) => Finding::hurts("state", "up, without carrier")
            .why("there is no neighbour: cable, switch port, or the other end of the pair is down"),
        (Some(_), _) => Finding::good("state", "up"),
        (None, _) => Finding::unknown("state", "the kernel does not tell"),
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
        .remedy(format!("ip link set {} mtu 9000", interface.name))
}

fn send_queue(root: &Root, interface: &Interface, file: &str) -> Finding {
    match root.number::<u32>(file) {
        None => Finding::unknown("send-queue", "the kernel does not tell"),
        Some(0) => {
            Finding::note("send-queue", "none").why("a frame that the device cannot take at once is lost")
        }
        Some(n) if n < 1000 => Finding::hurts("send-queue", format!("{n} frames"))
            .why("a burst longer than this is lost before it reaches the wire")
            .remedy(format!("ip link set {} txqueuelen 1000", interface.name)),
        Some(n) => Finding::good("send-queue", format!("{n} frames")),
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
        .remedy(format!("echo 0 > {file}")),
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
        .remedy(format!("echo 0 > {queues}/{}/rps_cpus", steered[0]))
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

    const PLACE: &str = "sys/class/net/eth7";

    fn tree(name: &str, more: &[(&str, &str)]) -> Tree {
        let at = |file: &str| format!("{PLACE}/{file}");
        let mut files: Vec<(String, &str)> = [
            ("ifindex", "7"),
            ("address", "02:00:00:00:00:07"),
            ("mtu", "1500"),
            ("type", "1"),
            ("flags", "0x1003"),
            ("carrier", "1"),
            ("tx_queue_len", "1000"),
            ("gro_flush_timeout", "0"),
            ("queues/rx-0/rps_cpus", "00000000,00000000"),
            ("statistics/rx_dropped", "0"),
        ]
        .map(|(file, text)| (at(file), text))
        .into();
        files.push(("proc/net/packet".to_owned(), "sk RefCnt Type Proto Iface R Rmem User Inode\n"));
        for (path, text) in more {
            let path = if path.starts_with("proc") { (*path).to_owned() } else { at(path) };
            files.retain(|(p, _)| *p != path);
            files.push((path, text));
        }
        let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
        Tree::new(name, &files)
    }

    fn found(name: &str, more: &[(&str, &str)]) -> Vec<Finding> {
        let tree = tree(name, more);
        let root = tree.root();
        findings(&root, &Interface::find(&root, "eth7").unwrap())
    }

    #[test]
    fn an_ordinary_interface_hurts_nowhere() {
        let found = found("ordinary", &[]);
        assert!(found.iter().all(|f| f.state == Good || f.check == "mtu"), "{found:?}");
    }

    #[test]
    fn each_trouble_is_found() {
        let bad = [
            ("type", "512"),
            ("flags", "0x1002"),
            ("tx_queue_len", "10"),
            ("gro_flush_timeout", "20000"),
            ("queues/rx-0/rps_cpus", "00000000,00000003"),
            ("statistics/rx_dropped", "5"),
            ("device/msi_irqs/41", "msix"),
            ("proc/irq/41/smp_affinity_list", "0-3"),
            (
                "proc/net/packet",
                "sk RefCnt Type Proto Iface R Rmem User Inode\n\
                 00000000b5c4e2a1 3      3    88b5   7     1 0      0      123\n\
                 00000000b5c4e2a2 3      3    0003   0     1 0      0      124\n\
                 00000000b5c4e2a3 3      3    88b6   8     1 0      0      125\n",
            ),
        ];
        let found = found("bad", &bad);
        for (check, state) in [
            ("kind", Hurts),
            ("state", Hurts),
            ("mtu", Note),
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
        let found = found("wire", &[("carrier", "0")]);
        assert_eq!(verdict(&found, "state"), (Hurts, None));
    }

    #[test]
    fn names_that_are_none() {
        let tree = tree("names", &[]);
        let root = tree.root();
        let error = Interface::find(&root, "eth8").unwrap_err();
        assert_eq!(error, "eth8: no such interface; there are: eth7");
        for name in ["", "..", "a/b", "a-name-of-16-oct"] {
            assert!(Interface::find(&root, name).unwrap_err().contains("1 to 15 characters"), "{name}");
        }
    }
}
