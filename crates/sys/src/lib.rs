//! Every system call and every mapping of Bypath.
