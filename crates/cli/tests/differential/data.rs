//! Moving bytes.

use crate::hand::scripts;

scripts! {
    warm_exchange, "full duplex", Ring: "
        pair
        warm
        c send 3 1000 1
        s wait_in 4 1000
        s recv 4 2000
    ";
}
