//! XDP links on veth pairs and loopback, in network namespaces of the tests' own. Programs for received frames need root of
//! the whole machine: without it these tests say that they are skipped.

#[macro_use]
mod common;
mod apart;
mod builder;
mod frames;
mod trouble;
