// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A second pair of queues of a network device (virtio 1.2, section 5.1.6.5.5), as Linux has one for each vCPU. All is sent by the first pair, so what is
//! received comes by that, too, as soon as the device knows it.

use turnstile_virtio::ring::{Buffer, Options};

use super::driver::{BUFFER, PAYLOAD, Ring, buffer, offer};
use crate::clock;
use crate::virtio::ring;
use crate::virtio::{Function, NO_VECTOR, PATIENCE};

/// Its queues, and that for commands, which is behind both pairs.
pub const RECEIVE: u16 = 2;
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

const _: () = assert!(ANSWER < 0x9_0000, "it is in memory");

/// The queue of commands, of which there is one at a time.
type Commands<'a> = ring::Ring<'a, 16>;

/// Enables the queues. Returns the one that receives, with its buffers, and the one for commands.
pub fn enable<'a>(function: &Function<'a>, options: Options) -> Option<(Ring<'a>, Commands<'a>)> {
    let mut receive = Ring::new(function, RECEIVE, 0, options)?;
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
