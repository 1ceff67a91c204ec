// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which of several queues a packet goes to: packets of a flow keep to one, so that they stay in order.

/// A number for the flow of a packet, by its first bytes.
pub fn flow(head: &[u8]) -> u64 {
    // IPv4 without options, TCP or UDP, no fragment: addresses and ports. Otherwise addresses; otherwise those of Ethernet.
    let bytes = match head {
        [_, _, _, _, _, _, _, _, _, _, _, _, 8, 0, 0x45, _, _, _, _, _, high, low, _, 6 | 17, ..]
            if high & 0x3f == 0 && *low == 0 =>
        {
            head.get(26..38)
        }
        [_, _, _, _, _, _, _, _, _, _, _, _, 8, 0, ..] => head.get(26..34),
        [_, _, _, _, _, _, _, _, _, _, _, _, 0x86, 0xdd, ..] => head.get(22..54),
        _ => head.get(..12),
    };
    let mix = |sum: u64, &byte: &u8| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let sum = bytes.unwrap_or_default().iter().fold(0xcbf2_9ce4_8422_2325, mix);
    sum ^ sum >> 32
}
