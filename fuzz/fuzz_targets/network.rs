// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Three devices on a switch, with memory that holds anything and changes under the reader.
#![no_main]

use libfuzzer_sys::fuzz_target;
use turnstile_net::control::{Control, Limits};
use turnstile_net::settings::{Accepts, Settings};
use turnstile_rig::{Fuse, Ram, Ring};
use turnstile_switch::port::Rules;
use turnstile_switch::relay::{Device, Relay};
use turnstile_virtio::device::Queue;
use turnstile_virtio::ring::Options;

const OPTIONS: Options = Options { indirect: true, event_idx: true };
/// Where the queues of a device are: to the driver, from it, for control.
const QUEUES: [u64; 3] = [0, 0x1000, 0x2000];

fuzz_target!(|input: ([Vec<u8>; 3], [u64; 3], u8, Vec<u8>)| {
    let (contents, seeds, flags, steps) = input;
    let mut net = Relay::<3, 2, 4>::new();
    let memories = [(); 3].map(|()| Ram::new(0x4000, Fuse::default()));
    let rings = QUEUES.map(|at| Ring::new(&memories[0], Ram::BASE + at, 8, OPTIONS));
    let mut controls = Vec::new();
    for (port, ram) in memories.iter().enumerate() {
        ram.put(Ram::BASE, &contents[port][..contents[port].len().min(0x4000)]);
        ram.restless.set(seeds[port]);
        net.switch().attach(port, Rules { isolated: flags >> port & 1 == 1, ..Rules::default() });
        controls.push(Queue::new(rings[2].layout, OPTIONS, 16));
    }
    let limits = Limits { may_change: true, pairs: 2 };
    let renew = |net: &mut Relay<3, 2, 4>, port: usize| {
        let offloads = flags >> (port + 3) & 1 == 1;
        let accepts = Accepts { merge: flags >> 6 & 1 == 1, ..Settings { offloads, ..Settings::new([2; 6]) }.features().into() };
        net.set_device(port, Some(Device::new(Control::new([2; 6]), accepts, 1600)));
        for number in 0..4 {
            let layout = Some((rings[number % 2].layout, OPTIONS));
            let _ = net.set_queue((port, number), &memories[port], layout, true);
        }
    };
    (0..3).for_each(|port| renew(&mut net, port));
    for (now, step) in steps.into_iter().take(64).enumerate() {
        let port = usize::from(step % 3);
        memories.iter().for_each(|ram| ram.fuse.mend());
        if step & 0x80 != 0 {
            let _ = net.control(port, &mut controls[port], &memories[port], &limits, |_| {});
        } else {
            let now = now as u64 * 500_000;
            let done = match step >> 5 & 3 {
                0 => net.pump(&memories, port, now, 8),
                pair => net.pump_pair(&memories, (port, usize::from(pair & 1)), now, 8),
            };
            if done.is_err() {
                renew(&mut net, port);
            }
        }
        net.interrupt(&memories, |_, _| {});
        while let Some(port) = net.broken() {
            renew(&mut net, port);
        }
        assert!(memories.iter().all(|ram| ram.fuse.steps() < 1_000_000));
    }
});
