// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The named ports of all VMs: who is at each, and what is under way in both directions.
//!
//! A port is open while its VM runs and somebody is there. Who comes while the VM does not run waits for it; a VM that stops ends what it
//! was open for. The hypervisor confirms each end, so that nothing of before comes to whoever is there next.

use std::collections::{BTreeMap, VecDeque};

use turnstile_link::{Down, MAX_BYTES};

use super::heard::Heard;

/// For how many bytes of a guest whoever is at a port has room at first.
pub const WINDOW: u16 = 16 * 1024;
/// So many bytes that were read are told together: a message for each few would take more of the line than they.
const BATCH: u16 = WINDOW / 4;

/// A VM, and a port of it.
pub type PortOf = (u8, u8);

/// The ports.
#[derive(Debug, Default)]
pub struct Ports {
    all: BTreeMap<PortOf, Port>,
    /// Which life each VM is in that runs.
    lives: BTreeMap<u8, u32>,
    /// What the hypervisor is to be told before all else.
    next: VecDeque<(PortOf, Say)>,
}

/// A port.
#[derive(Debug, Default)]
struct Port {
    /// Somebody is there.
    is_wanted: bool,
    /// The hypervisor was told so.
    is_open: bool,
    /// How many ends it has not confirmed.
    closing: u32,
    /// For how many bytes the hypervisor has room.
    room: usize,
    /// How many it has that the guest has not taken.
    sent: usize,
    queue: VecDeque<u8>,
    /// How many bytes were read, and not told.
    read: u16,
}

/// What the hypervisor is told of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Say {
    /// Somebody is there.
    Open(u32),
    /// Nobody is any more.
    Close,
    /// These bytes come.
    Bytes(Vec<u8>),
    /// There is room for so many bytes more.
    Room(u16),
}

impl Say {
    /// Returns the message that says it.
    pub fn message(&self, (vm, port): PortOf) -> Down<'_> {
        match self {
            Say::Open(boots) => Down::PortOpen { vm, port, boots: *boots, room: WINDOW },
            Say::Close => Down::PortClose { vm, port },
            Say::Bytes(bytes) => Down::Port { vm, port, bytes },
            Say::Room(bytes) => Down::PortRoom { vm, port, bytes: *bytes },
        }
    }
}

impl Ports {
    fn port(&mut self, of: PortOf) -> &mut Port {
        self.all.entry(of).or_default()
    }

    /// Somebody comes to a port at which nobody is.
    pub fn connect(&mut self, of: PortOf) {
        self.port(of).is_wanted = true;
        self.open(of);
    }

    /// Tells that a port is open, if it can be.
    fn open(&mut self, of: PortOf) {
        let Some(&life) = self.lives.get(&of.0) else { return };
        let port = self.port(of);
        if port.is_wanted && !port.is_open && port.closing == 0 {
            (port.is_open, port.room, port.sent, port.read) = (true, 0, 0, 0);
            self.next.push_back((of, Say::Open(life)));
        }
    }

    /// They go. What the guest has not taken is gone, too.
    pub fn disconnect(&mut self, of: PortOf) {
        let port = self.port(of);
        port.is_wanted = false;
        port.queue.clear();
        if std::mem::take(&mut port.is_open) {
            port.closing += 1;
            self.next.push_back((of, Say::Close));
        }
    }

    /// Takes what they send.
    pub fn push(&mut self, of: PortOf, bytes: &[u8]) {
        let port = self.port(of);
        if port.is_wanted {
            port.queue.extend(bytes);
        }
    }

    /// They have read so many bytes of the guest: there is room for more.
    pub fn read(&mut self, of: PortOf, bytes: usize) {
        let port = self.port(of);
        if !port.is_open {
            return;
        }
        port.read = port.read.saturating_add(u16::try_from(bytes).unwrap_or(u16::MAX));
        if port.read >= BATCH {
            let room = Say::Room(std::mem::take(&mut port.read));
            self.next.push_back((of, room));
        }
    }

    /// Returns how many bytes the guest has not taken of what they have sent.
    pub fn backlog(&self, of: PortOf) -> usize {
        self.all.get(&of).map_or(0, |port| port.queue.len() + port.sent)
    }

    /// Says whether what the hypervisor has just said of a port is for whoever is there now.
    pub fn is_for_them(&self, of: PortOf) -> bool {
        self.all.get(&of).is_some_and(|port| port.is_open)
    }

    /// Takes what was heard from the machine. Returns the ports that a VM which has stopped has closed.
    pub fn hear(&mut self, heard: &Heard) -> Vec<PortOf> {
        match *heard {
            Heard::Started { vm, boots, .. } => {
                self.lives.insert(vm, boots);
                let own: Vec<PortOf> = self.all.keys().copied().filter(|(of, _)| *of == vm).collect();
                own.into_iter().for_each(|of| self.open(of));
            }
            Heard::Stopped { vm, .. } => return self.stop(vm),
            Heard::PortRoom { vm, port, bytes } => {
                let port = self.port((vm, port));
                if port.is_open {
                    port.room += usize::from(bytes);
                    port.sent = port.sent.saturating_sub(bytes.into());
                }
            }
            Heard::PortClosed { vm, port } => {
                let place = self.port((vm, port));
                place.closing = place.closing.saturating_sub(1);
                self.open((vm, port));
            }
            _ => {}
        }
        Vec::new()
    }

    fn stop(&mut self, vm: u8) -> Vec<PortOf> {
        self.lives.remove(&vm);
        let mut closed = Vec::new();
        for (of, port) in self.all.iter_mut().filter(|(of, port)| of.0 == vm && port.is_open) {
            // The hypervisor has closed it by itself.
            (port.is_open, port.is_wanted, port.sent) = (false, false, 0);
            port.queue.clear();
            closed.push(*of);
        }
        // What was not said yet is of the life that has ended, but for an end that is to be confirmed.
        self.next.retain(|(of, say)| of.0 != vm || *say == Say::Close);
        closed
    }

    /// Returns what can be said now.
    pub fn next(&mut self) -> Option<(PortOf, Say)> {
        if let Some(said) = self.next.pop_front() {
            return Some(said);
        }
        let count = |port: &Port| match port.is_open {
            true => port.queue.len().min(port.room).min(MAX_BYTES),
            false => 0,
        };
        let (of, port) = self.all.iter_mut().find(|(_, port)| count(port) > 0)?;
        let count = count(port);
        (port.room, port.sent) = (port.room - count, port.sent + count);
        Some((*of, Say::Bytes(port.queue.drain(..count).collect())))
    }
}

#[cfg(test)]
mod tests {
    use turnstile_link::StopReason;

    use super::*;

    const OF: PortOf = (1, 2);

    fn started(boots: u32) -> Heard {
        Heard::Started { vm: 1, boots, free_memory: 0, free_tables: 0 }
    }

    fn stopped() -> Heard {
        Heard::Stopped { vm: 1, reason: StopReason::Reset, restarts: true }
    }

    fn room(bytes: u16) -> Heard {
        Heard::PortRoom { vm: 1, port: 2, bytes }
    }

    fn said(ports: &mut Ports) -> Vec<Say> {
        std::iter::from_fn(|| ports.next())
            .inspect(|(of, _)| assert_eq!(*of, OF))
            .map(|(_, say)| say)
            .collect()
    }

    #[test]
    fn who_comes_waits_for_the_vm_and_ends_with_it() {
        let mut ports = Ports::default();
        ports.connect(OF);
        ports.push(OF, b"early");
        assert_eq!(said(&mut ports), []);
        ports.hear(&started(3));
        assert_eq!(said(&mut ports), [Say::Open(3)]);
        ports.hear(&room(4));
        assert_eq!(said(&mut ports), [Say::Bytes(b"earl".to_vec())]);
        assert_eq!((ports.backlog(OF), ports.is_for_them(OF)), (5, true));
        ports.hear(&room(4));
        assert_eq!((said(&mut ports), ports.backlog(OF)), (vec![Say::Bytes(b"y".to_vec())], 1));
        assert_eq!(ports.hear(&stopped()), [OF]);
        assert_eq!((ports.backlog(OF), ports.is_for_them(OF)), (0, false));
        ports.hear(&started(4));
        ports.push(OF, b"nobody");
        assert_eq!(said(&mut ports), []);
        ports.connect(OF);
        assert_eq!(said(&mut ports), [Say::Open(4)]);
    }

    #[test]
    fn who_comes_next_waits_until_the_end_is_confirmed() {
        let mut ports = Ports::default();
        ports.hear(&started(1));
        ports.connect(OF);
        ports.hear(&room(100));
        ports.push(OF, b"lost");
        ports.disconnect(OF);
        assert_eq!(said(&mut ports), [Say::Open(1), Say::Close]);
        ports.connect(OF);
        ports.push(OF, b"new");
        ports.hear(&room(4));
        assert_eq!((said(&mut ports), ports.is_for_them(OF)), (vec![], false));
        // The VM ends meanwhile: the end is confirmed all the same.
        assert_eq!(ports.hear(&stopped()), []);
        ports.hear(&started(2));
        assert_eq!(said(&mut ports), []);
        ports.hear(&Heard::PortClosed { vm: 1, port: 2 });
        assert_eq!(said(&mut ports), [Say::Open(2)]);
        ports.hear(&room(100));
        assert_eq!(said(&mut ports), [Say::Bytes(b"new".to_vec())]);
        ports.disconnect(OF);
        assert_eq!(ports.hear(&stopped()), []);
        assert_eq!(said(&mut ports), [Say::Close], "what is to be confirmed is said");
    }

    #[test]
    fn pieces_are_short_and_reading_makes_room() {
        let mut ports = Ports::default();
        ports.hear(&started(1));
        ports.connect(OF);
        ports.read(OF, BATCH.into());
        ports.push(OF, &[7; 1000]);
        ports.hear(&room(1024));
        let lengths: Vec<usize> = said(&mut ports)
            .iter()
            .map(|say| if let Say::Bytes(bytes) = say { bytes.len() } else { 0 })
            .collect();
        assert_eq!(lengths, [0, 0, 240, 240, 240, 240, 40]);
        ports.read(OF, 1);
        assert_eq!(said(&mut ports), []);
        ports.read(OF, BATCH.into());
        assert_eq!(said(&mut ports), [Say::Room(BATCH + 1)]);
        for say in [Say::Open(1), Say::Close, Say::Bytes(vec![1; MAX_BYTES]), Say::Room(9)] {
            assert!(turnstile_link::send(&say.message(OF), |_| {}).is_ok());
        }
    }
}
