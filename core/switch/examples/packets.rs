// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packets from one VM to another, for a tool that counts instructions:
//!
//! ```sh
//! cargo build --release -p turnstile-switch --example packets
//! valgrind --tool=callgrind --callgrind-out-file=/dev/null --toggle-collect='*device_turn*' target/release/examples/packets 16 64
//! ```
//!
//! The arguments are how many packets are sent at once, and how many bytes they have. There are 64 turns.

use turnstile_net::control::Control;
use turnstile_net::settings::{Accepts, Settings};
use turnstile_rig::{Fuse, Guest, Plain, Ram, Request};
use turnstile_switch::port::Rules;
use turnstile_switch::relay::{Device, Relay, Rest};
use turnstile_virtio::ring::Options;

type Net = Relay<2, 1, 64>;

#[inline(never)] // The tool finds it by its name.
fn device_turn(net: &mut Net, memories: &[Plain; 2]) -> u32 {
    assert_eq!(net.pump(memories, 0, 0, 64), Ok(Rest::Idle));
    let mut interrupts = 0;
    net.interrupt(memories, |_, _| interrupts += 1);
    interrupts
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse().expect("a number"));
    let (depth, length) = (arguments.next().unwrap_or(1), arguments.next().unwrap_or(64));
    let size = 0x8_0000;
    let rams = [0, 1].map(|_| Ram::new(size, Fuse::default()));
    let memories = [0, 1].map(|_| Plain::new(size));
    let options = Options { indirect: true, event_idx: true };
    let [mut sender, mut receiver] =
        [0, 1].map(|port: usize| Guest::new(&rams[port], Ram::BASE, 64, options, 0x1000));
    let accepts: Accepts = Settings::new([0; 6]).features().into();
    let mut net = Net::new();
    for port in 0..2 {
        net.switch().attach(port, Rules { mac: Some([2, 0, 0, 0, 0, port as u8]), ..Rules::default() });
        net.set_device(port, Some(Device::new(Control::new([0; 6]), accepts, 1600)));
    }
    let layout = |guest: &Guest| Some((guest.ring.layout, options));
    assert_eq!(net.set_queue((0, 1), &rams[0], layout(&sender), false), Ok(true));
    assert_eq!(net.set_queue((1, 0), &rams[1], layout(&receiver), false), Ok(true));
    let mut readable = vec![0; 12];
    readable.extend([2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 8, 0]);
    readable.resize(12 + length, 7);
    let packet =
        Request { readable_cuts: vec![12, length as u32], readable, writable: vec![], indirect: true };
    for _ in 0..64 {
        for _ in 0..depth {
            assert!(sender.ask(&rams[0], &packet).is_some());
            assert!(
                receiver.ask(&rams[1], &Request { writable: vec![1536], ..Request::default() }).is_some()
            );
        }
        memories.iter().zip(&rams).for_each(|(memory, ram)| memory.set(ram.get(Ram::BASE, size)));
        assert!(device_turn(&mut net, &memories) >= 1);
        memories.iter().zip(&rams).for_each(|(memory, ram)| ram.put(Ram::BASE, &memory.get()));
        assert_eq!((receiver.take(&rams[1]).len(), sender.take(&rams[0]).len()), (depth, depth));
        receiver.arm(&rams[1]);
        sender.arm(&rams[0]);
    }
}
