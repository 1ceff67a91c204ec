// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A second pair of queues of a network device (virtio 1.2, section 5.1.6.5.5), as Linux has one for each vCPU. All is sent by the first pair, so what is
//! received comes by that, too, as soon as the device knows it. Packets are datagrams then, whose checksums are open, as those of Linux are.

use turnstile_virtio::config::NetworkHeader;
use turnstile_virtio::ring::{Buffer, Options};

use super::buffers::{BUFFER, END, PAYLOAD, RECEIVE_ALSO, Ring, buffer, offer};
use crate::clock;
use crate::virtio::ring::{self, Ram};
use crate::virtio::{Function, NO_VECTOR, PATIENCE};

/// Its queue that sends, and that for commands, which is behind both pairs.
const SEND: u16 = 3;
const COMMANDS: u16 = 4;
/// How many buffers it has: for what comes before the device knows by which pair this driver sends.
const BUFFERS: u16 = 16;
/// Where a command is, behind them, and its answer.
const COMMAND: u64 = PAYLOAD + BUFFERS as u64 * BUFFER;
const ANSWER: u64 = COMMAND + 8;
/// VIRTIO_NET_CTRL_MQ, VIRTIO_NET_CTRL_MQ_VQ_PAIRS_SET, and two pairs.
const SET_PAIRS: u64 = 4 | 2 << 16;
/// VIRTIO_NET_OK, and what is none.
const OK: u64 = 0;
const NOT_ANSWERED: u64 = 0xff;

/// The header of a packet whose checksum, of UDP over IPv4, is open: the flag and where it begins, and where it is stored.
const OPEN: [u64; 2] = [1 | 34 << 48, 6];
/// What follows the addresses of Ethernet: IPv4, from 10.0.0.1 to 10.0.0.2 in both directions, and UDP, as numbers whose lowest bytes come first.
const DATAGRAM: [u64; 4] = [0x320000450008, 0xa000011400000, 0x400200000a0100, 0x1e000040];
/// Where in a datagram it is said what it is.
pub const SAID: u64 = 42;

const _: () = assert!(ANSWER < END, "it is in memory");

/// The queue of commands, of which there is one at a time.
type Commands<'a> = ring::Ring<'a, 16>;

/// Writes the header of a packet and what follows its addresses. Returns where it is to say what it is.
pub fn begin(ram: &Ram<'_>, address: u64) -> u64 {
    let (write, [first, second]) = (ram.0.write, OPEN);
    write(address, 8, first);
    write(address + 8, 4, second);
    let at = address + NetworkHeader::LENGTH as u64 + 12;
    for (place, word) in (at..).step_by(8).zip(DATAGRAM) {
        write(place, 8, word);
    }
    SAID
}

/// Enables the queues. Returns the one that receives, with its buffers, and the one for commands.
pub fn enable<'a>(function: &Function<'a>, options: Options) -> Option<(Ring<'a>, Commands<'a>)> {
    let mut receive = Ring::new(function, RECEIVE_ALSO, 0, options)?;
    for index in 0..BUFFERS {
        let address = buffer(&receive, index, BUFFER);
        offer(&mut receive, address, BUFFER).ok()?;
    }
    Ring::new(function, SEND, NO_VECTOR, options)?;
    Some((receive, Commands::new(function, COMMANDS, NO_VECTOR, options)?))
}

/// Tells the device that both pairs are in use, and waits until it has agreed.
pub fn use_both(mut commands: Commands<'_>) -> Option<()> {
    let ram = commands.ram;
    let [command, answer] = [COMMAND, ANSWER].map(|place| ram.0.memory + place);
    (ram.0.write)(command, 4, SET_PAIRS);
    (ram.0.write)(answer, 1, NOT_ANSWERED);
    let buffers = [(command, 4, false), (answer, 1, true)];
    let buffers = buffers.map(|(address, length, writable)| Buffer { address, length, writable });
    commands.queue.add(&ram, &buffers).ok()?;
    commands.show().ok()?;
    let mut done = Ok(None);
    clock::wait(PATIENCE, || {
        done = commands.take();
        done != Ok(None)
    });
    (done.ok()?.is_some() && (ram.0.read)(answer, 1) == OK).then_some(())
}
