//! The numbers in docs/shm-format.md are those of the code.
#![cfg(not(loom))]

use bypath_shm::arena::{Control, Geometry, PAGE};
use bypath_shm::dgram::{HEADS, LONGEST, MARK, Record, WORD};
use bypath_shm::direction::{Direction, Head, HeadLine, Path, ReaderAsks, TailLine, WriterAsks};
use bypath_shm::family::{
    Addr, DATAGRAM_ENDS, DATAGRAMS_OFFSET, DatagramCounts, DatagramEnd, ENDS, ENDS_OFFSET, End, Header,
    PROCESSES, Process, ReaderLine, STATS_OFFSET, WriterLine,
};
use bypath_shm::inbox::{BELLS, Inbox};
use bypath_shm::mailbox::{Mailbox, Page, Writers, phase};
use bypath_shm::reason::REASON_SLOTS;
use bypath_shm::stats::{BLOCKS, ByteBlock, RECORD_SIZE, StatsRecord};
use std::collections::BTreeMap;
use std::mem::offset_of;

type Marks = bypath_shm::marks::Marks<{ ENDS / 4096 }, { ENDS / 64 }>;

/// Size of a field, without a value of its type.
fn size_by<T, F>(_: fn(&T) -> &F) -> usize {
    size_of::<F>()
}

/// `Type.field` to offset and size.
fn layout() -> BTreeMap<String, (usize, usize)> {
    macro_rules! fields {
        ($t:ident: $($f:ident),*) => {
            vec![$((
                concat!(stringify!($t), ".", stringify!($f)).to_string(),
                (offset_of!($t, $f), size_by(|v: &$t| &v.$f)),
            )),*]
        };
    }
    [
        fields!(Header: magic, ends_used, next_bell, processes, births, next_look, execs),
        fields!(Process: pid, ready, start_time, command),
        fields!(End: state, generation, fd, reason, rx_reason, holders, cookie, peer_cookie, local, remote, ring_size, pending_error, flags, rcvlowat, rcvtimeo, sndtimeo, rule, wish, w, r, service, arena, slot),
        fields!(WriterLine: lock, tail, head_cache, path, claims, flush, backed, in_kernel, limit, ring_bytes, kernel_bytes, not_before, backed_from),
        fields!(ReaderLine: tail_cache, in_kernel, calls, ring_bytes, kernel_bytes, kept_read, kept, heir, leaving),
        fields!(DatagramEnd: holder, fd, paths, reason, rx_reason, cookie, rule, routes, local, remote, service, tx, rx),
        fields!(DatagramCounts: ring, ring_bytes, kernel, kernel_bytes, lost),
        fields!(Addr: family, port, bytes),
        fields!(StatsRecord: magic, pid, state, start_time, command, connections, upgraded, recalled, not_upgraded, bytes),
        fields!(ByteBlock: ring_tx, ring_rx, kernel_tx, kernel_rx, spun_ticks, pair_tx, pair_rx),
        fields!(Marks: top, pad, middle, low),
        fields!(Inbox: marks, asleep),
        fields!(Control: in_use, life, cookies, ends, direction, mailbox),
        fields!(Direction: t, h, ra, wa),
        fields!(TailLine: tail, cpu, lost, released),
        fields!(HeadLine: head, cpu, carrier_read, looks),
        fields!(ReaderAsks: wait, ask),
        fields!(WriterAsks: wait, switch_k, flags, hold),
        fields!(Record: octets, head, mark),
        fields!(Mailbox: gate, head, tail, writers),
        fields!(Page: mailbox, owner),
        fields!(Writers: lock, head, lost, tail),
    ]
    .concat()
    .into_iter()
    .collect()
}

/// Rows `| \`name\` | number | ...` of the document.
fn rows() -> Vec<(String, Vec<usize>)> {
    let document = include_str!("../../../docs/shm-format.md");
    let row = |line: &str| {
        let mut cells = line.strip_prefix("| `")?.split(" | ");
        let name = cells.next()?.strip_suffix('`')?.to_string();
        let numbers = cells.map_while(|c| c.trim_end_matches(" |").parse().ok()).collect();
        Some((name, numbers))
    };
    document.lines().filter_map(row).collect()
}

#[test]
fn every_field_stands_where_the_document_says() {
    let code = layout();
    let mut named = 0;
    for (name, numbers) in rows().into_iter().filter(|(name, _)| name.contains('.')) {
        let (offset, size) = code.get(&name).unwrap_or_else(|| panic!("{name}: no such field"));
        assert_eq!(numbers, [*offset, *size], "{name}: offset and size");
        named += 1;
    }
    assert_eq!(named, code.len(), "fields that the document leaves out");
}

#[test]
fn constants_are_those_of_the_document() {
    let code = BTreeMap::from([
        ("PROCESSES", PROCESSES),
        ("ENDS", ENDS),
        ("BELLS", BELLS),
        ("RECORD_SIZE", RECORD_SIZE),
        ("STATS_OFFSET", STATS_OFFSET),
        ("ENDS_OFFSET", ENDS_OFFSET),
        ("END_SIZE", size_of::<End>()),
        ("DATAGRAM_ENDS", DATAGRAM_ENDS),
        ("DATAGRAMS_OFFSET", DATAGRAMS_OFFSET),
        ("DATAGRAM_END_SIZE", size_of::<DatagramEnd>()),
        ("PAGE", PAGE),
        ("MAX_SLOTS", Geometry::MAX_SLOTS as usize),
        ("BLOCKS", BLOCKS),
        ("REASON_SLOTS", REASON_SLOTS),
        ("HEADS", HEADS),
        ("LONGEST", LONGEST),
    ]);
    let rows: Vec<_> = rows().into_iter().filter(|(name, _)| !name.contains('.')).collect();
    assert_eq!(rows.len(), code.len());
    for (name, numbers) in rows {
        assert_eq!(numbers, [code[name.as_str()]], "{name}");
    }
}

#[test]
fn words_are_laid_out_as_the_document_says() {
    assert_eq!(Head::new(5, Path::Ring).raw(), 5);
    assert_eq!(Head::new(5, Path::Drain).raw(), 1 << 62 | 5);
    assert_eq!(Head::new(5, Path::Kernel).raw(), 3 << 62 | 5);
    assert_eq!(Head::from_raw(2 << 62).path(), Path::Kernel);
    assert_eq!(bypath_shm::direction::wait::word(2, 3), 2 << 32 | 3);
    use bypath_shm::direction::{ask, writer_flag};
    assert_eq!([ask::CONSENT, ask::RECALL, ask::CLOSED, ask::LEFT, writer_flag::SHUT], [1, 2, 4, 8, 1]);
    assert_eq!([phase::CLOSED, phase::OPENING, phase::OPEN, phase::DEAD], [0, 1, 2, 3]);
    let record = Record { octets: 1, head: 2, mark: MARK }.encode();
    assert_eq!(record.len() as u64, WORD);
    assert_eq!(u64::from_ne_bytes(record).to_le(), 0xb6d7_0002_0000_0001);
    let g = Geometry { slots: 3, ring: 65536 };
    assert_eq!(g.slot(2), PAGE + 2 * (PAGE + 2 * 65536));
    assert_eq!([g.ring_at(2, 0), g.ring_at(2, 1)], [g.slot(2) + PAGE, g.slot(2) + PAGE + 65536]);
}
