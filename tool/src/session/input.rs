// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What was typed and has not been sent: guests take input as fast as they read, and nothing is lost meanwhile.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use turnstile_link::MAX_BYTES;

use super::heard::Heard;

/// A guest that reads nothing for so long is spoken of.
const PATIENCE: Duration = Duration::from_secs(2);

/// The input of all VMs of a line with frames.
#[derive(Debug, Default)]
pub struct Inputs {
    vms: BTreeMap<u8, Input>,
}

/// The input of a VM.
#[derive(Debug, Default)]
struct Input {
    running: bool,
    /// How many bytes its console has room for.
    room: usize,
    /// How many bytes were sent and not read.
    sent: usize,
    queue: VecDeque<u8>,
    pause: Pause,
}

/// How long input has stood still.
#[derive(Debug, Default)]
pub struct Pause {
    since: Option<Instant>,
    told: bool,
}

impl Pause {
    /// Input has moved on.
    pub fn end(&mut self) {
        *self = Pause::default();
    }

    /// Input waits; says whether it has done so for long enough to be spoken of, once.
    pub fn is_due(&mut self, now: Instant) -> bool {
        let since = *self.since.get_or_insert(now);
        let due = !self.told && now.duration_since(since) >= PATIENCE;
        self.told |= due;
        due
    }
}

impl Inputs {
    /// Takes what is to be typed into a VM's console.
    pub fn push(&mut self, vm: u8, bytes: &[u8]) {
        self.vms.entry(vm).or_default().queue.extend(bytes);
    }

    /// Takes what was heard from the machine; returns how many bytes were dropped because their VM has stopped for good.
    pub fn hear(&mut self, heard: &Heard) -> usize {
        match heard {
            Heard::Vm { vm, running, room, .. } => {
                let input = self.vms.entry(*vm).or_default();
                (input.running, input.room, input.sent) = (*running, usize::from(*room), 0);
            }
            Heard::Room { vm, bytes } => {
                let input = self.vms.entry(*vm).or_default();
                input.room += usize::from(*bytes);
                input.sent = input.sent.saturating_sub(usize::from(*bytes));
                input.pause.end();
            }
            Heard::Started { vm, .. } => self.vms.entry(*vm).or_default().running = true,
            Heard::Stopped { vm, restarts, .. } => {
                let input = self.vms.entry(*vm).or_default();
                input.running = false;
                input.pause.end();
                if !restarts {
                    return std::mem::take(&mut input.queue).len();
                }
            }
            _ => {}
        }
        0
    }

    /// Returns a piece that can be sent now, and the VM that it is for.
    pub fn next(&mut self) -> Option<(u8, Vec<u8>)> {
        let (&vm, input) = self.vms.iter_mut().find(|(_, input)| input.count() > 0)?;
        let count = input.count();
        input.room -= count;
        input.sent += count;
        Some((vm, input.queue.drain(..count).collect()))
    }

    /// Returns how many bytes were not sent.
    pub fn queued(&self) -> usize {
        self.vms.values().map(|input| input.queue.len()).sum()
    }

    /// Returns the VMs that have not read for a while although there is more than their consoles have room for, each with the
    /// number of bytes that wait; each once, until it reads again.
    pub fn stalled(&mut self, now: Instant) -> Vec<(u8, usize)> {
        let waiting = self.vms.iter_mut().filter(|(_, input)| input.running && !input.queue.is_empty());
        waiting
            .filter_map(|(&vm, input)| input.pause.is_due(now).then(|| (vm, input.sent + input.queue.len())))
            .collect()
    }
}

impl Input {
    /// How many bytes can be sent in one piece now.
    fn count(&self) -> usize {
        if self.running { self.queue.len().min(self.room).min(MAX_BYTES) } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use turnstile_link::StopReason;

    use super::*;

    fn vm(running: bool) -> Heard {
        Heard::Vm { vm: 0, name: "one".into(), vcpus: 1, running, paused: false, room: 1024 }
    }

    fn started() -> Heard {
        Heard::Started { vm: 0, boots: 1, free_memory: 0, free_tables: 0 }
    }

    fn stopped(restarts: bool) -> Heard {
        Heard::Stopped { vm: 0, reason: StopReason::Reset, restarts }
    }

    /// Everything that can be sent now.
    fn sent(inputs: &mut Inputs) -> usize {
        std::iter::from_fn(|| inputs.next())
            .inspect(|(_, piece)| assert!(piece.len() <= MAX_BYTES))
            .map(|(_, piece)| piece.len())
            .sum()
    }

    #[test]
    fn no_more_is_sent_than_there_is_room_for() {
        let mut inputs = Inputs::default();
        let typed: Vec<u8> = (0..3000u32).map(|n| n as u8).collect();
        inputs.push(0, &typed);
        assert_eq!(sent(&mut inputs), 0, "nobody is there");
        inputs.hear(&vm(false));
        assert_eq!(sent(&mut inputs), 0, "the guest does not run");
        inputs.hear(&started());
        let first = inputs.next().unwrap();
        assert_eq!((first.0, &first.1[..]), (0, &typed[..MAX_BYTES]));
        assert_eq!((sent(&mut inputs), inputs.queued()), (1024 - MAX_BYTES, 3000 - 1024));
        inputs.hear(&Heard::Room { vm: 0, bytes: 256 });
        assert_eq!(
            (inputs.next().unwrap().1, sent(&mut inputs)),
            (typed[1024..1024 + MAX_BYTES].to_vec(), 16)
        );
    }

    #[test]
    fn input_waits_for_a_restart_and_goes_with_the_last_life() {
        let mut inputs = Inputs::default();
        inputs.hear(&vm(true));
        inputs.push(0, &[b'x'; 1500]);
        assert_eq!(sent(&mut inputs), 1024);
        inputs.hear(&Heard::Room { vm: 0, bytes: 1024 });
        assert_eq!(inputs.hear(&stopped(true)), 0);
        assert_eq!((sent(&mut inputs), inputs.queued()), (0, 476));
        inputs.hear(&started());
        assert_eq!(sent(&mut inputs), 476);
        inputs.push(0, &[b'x'; 1000]);
        assert_eq!(sent(&mut inputs), 1024 - 476);
        assert_eq!((inputs.hear(&stopped(false)), inputs.queued()), (452, 0));
    }

    #[test]
    fn guest_that_does_not_read_is_spoken_of_once() {
        let mut inputs = Inputs::default();
        let (now, later) = (Instant::now(), Instant::now() + PATIENCE);
        inputs.hear(&vm(true));
        inputs.push(0, &[b'x'; 25_200]);
        sent(&mut inputs);
        assert_eq!(inputs.stalled(now), []);
        assert_eq!(inputs.stalled(later), [(0, 25_200)]);
        assert_eq!(inputs.stalled(later + PATIENCE), []);
        inputs.hear(&Heard::Room { vm: 0, bytes: 1024 });
        sent(&mut inputs);
        assert_eq!(inputs.stalled(later), []);
        assert_eq!(inputs.stalled(later + PATIENCE), [(0, 25_200 - 1024)]);
    }
}
