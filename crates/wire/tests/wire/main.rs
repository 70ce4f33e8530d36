//! The wire formats against others: frames that scapy and Linux made and tshark read, etherparse both ways, and input
//! that nobody meant to send.

mod frames;
mod golden;
mod hostile;
mod oracle;
#[cfg(feature = "roce")]
mod roce;
mod without_std;
