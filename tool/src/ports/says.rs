// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What programs at ports do, for the main loop.

use std::sync::Arc;
use std::sync::mpsc::Sender;

use super::outbox::Outbox;
use crate::session::PortOf;

/// What a program at a port does.
#[derive(Debug)]
pub enum Says {
    /// It comes.
    Come {
        /// To this port.
        of: PortOf,
        /// Its number.
        id: u64,
        /// Where bytes for it go.
        outbox: Arc<Outbox>,
        /// Where more of its bytes are asked for.
        more: Sender<()>,
    },
    /// It sends bytes, and no more until they are asked for.
    Sends {
        /// To this port.
        of: PortOf,
        /// Its number.
        id: u64,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// It has read so many bytes of the guest.
    Reads {
        /// At this port.
        of: PortOf,
        /// Its number.
        id: u64,
        /// How many.
        bytes: usize,
    },
    /// It sends nothing more.
    Ends {
        /// At this port.
        of: PortOf,
        /// Its number.
        id: u64,
    },
    /// It has closed the connection. What it has sent is still the guest's.
    IsGone {
        /// From this port.
        of: PortOf,
        /// Its number.
        id: u64,
    },
}
