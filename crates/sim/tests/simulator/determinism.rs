//! The same seed gives the same run.

use crate::faults::chaos;
use bypath_link::pcapng::Reader;
use bypath_link::pcapng::reader::Block;
use bypath_sim::Simulation;
use bypath_sim::link::LinkConfig;
use std::time::Duration;

#[test]
fn the_same_seed_gives_the_same_file_and_another_one_another() {
    let name = "the_same_seed_gives_the_same_file_and_another_one_another";
    let files: Vec<_> = [3, 3, 4].into_iter().map(|seed| chaos(name, seed).pcapng().unwrap()).collect();
    assert!(files[0].len() > 100_000);
    assert!(files[0] == files[1], "one seed, two runs");
    assert!(files[0] != files[2], "two seeds, one run");
}

#[test]
fn a_run_is_a_capture_file_with_an_interface_for_each_link() {
    let sim = chaos("a_run_is_a_capture_file_with_an_interface_for_each_link", 5);
    let file = sim.pcapng().unwrap();
    let mut reader = Reader::new(&file[..]);
    let (mut frames, mut last, mut interfaces) = (0, 0, std::collections::BTreeSet::new());
    while let Some(block) = reader.next().unwrap() {
        let Block::Frame(frame) = block else { continue };
        assert!(frame.ns >= last, "time goes back");
        (frames, last) = (frames + 1, frame.ns);
        interfaces.insert(frame.interface);
    }
    assert_eq!((frames, interfaces.len()), (sim.record().frames().len(), sim.link_names().count()));
    assert!(sim.record().frames().any(|sent| sent.remark.contains("lost")));
}

#[test]
fn whatever_is_stalled_stays_and_goes_on_later() {
    let mut sim = Simulation::new("whatever_is_stalled_stays_and_goes_on_later", 1);
    let lan = sim.link("lan", LinkConfig::default());
    let [a, b] = [("a", "10.0.0.1/24"), ("b", "10.0.0.2/24")].map(|(name, address)| {
        let host = sim.host(name);
        sim.attach(host, lan, &[address]);
        host
    });
    let server = sim.stack(b).open_udp().unwrap();
    sim.stack(b).udp(server).unwrap().bind("0.0.0.0:7".parse().unwrap()).unwrap();
    sim.run(Duration::from_secs(3));
    sim.stall(a, 0, true);
    let client = sim.stack(a).open_udp().unwrap();
    sim.stack(a).udp(client).unwrap().send(b"late", Some("10.0.0.2:7".parse().unwrap())).unwrap();
    sim.run(Duration::from_secs(3));
    assert_eq!(sim.count(b, "udp_delivered"), 0);
    sim.stall(a, 0, false);
    sim.run(Duration::from_secs(1));
    assert_eq!(sim.count(b, "udp_delivered"), 1);
}
