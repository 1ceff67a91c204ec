// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Registers of the 82574 that the driver uses (82574 GbE Controller Family Datasheet, section 10.2), by their offsets in BAR 0.

/// How many bytes of BAR 0 have them.
pub const LENGTH: u64 = 0x5b68;

/// Device control (section 10.2.2.1): no more accesses to memory; the link may be up; speed and duplex from here and not from the PHY; reset;
/// PAUSE frames each way; VLAN tags are cut out.
pub const CTRL: u64 = 0x0000;
pub const CTRL_MASTER_DISABLE: u32 = 1 << 2;
pub const CTRL_SLU: u32 = 1 << 6;
pub const CTRL_FRCSPD: u32 = 1 << 11;
pub const CTRL_FRCDPLX: u32 = 1 << 12;
pub const CTRL_RST: u32 = 1 << 26;
pub const CTRL_RFCE: u32 = 1 << 27;
pub const CTRL_TFCE: u32 = 1 << 28;
pub const CTRL_VME: u32 = 1 << 30;

/// Device status (section 10.2.2.2): it may access memory.
pub const STATUS: u64 = 0x0008;
pub const STATUS_MASTER_ENABLE: u32 = 1 << 19;

/// NVM control (section 10.2.2.3): what the NVM says of registers has been loaded.
pub const EECD: u64 = 0x0010;
pub const EECD_AUTO_RD: u32 = 1 << 9;

/// Extended device control (section 10.2.2.5): there is a driver; messages clear their bits of the pending array.
pub const CTRL_EXT: u64 = 0x0018;
pub const CTRL_EXT_DRV_LOAD: u32 = 1 << 28;
pub const CTRL_EXT_PBA: u32 = 1 << 31;

/// Interrupts (section 10.2.4): causes, throttling, those that interrupt, those that do not, those that a message clears, vectors.
pub const ICR: u64 = 0x00c0;
pub const ITR: u64 = 0x00c4;
pub const IMS: u64 = 0x00d0;
pub const IMC: u64 = 0x00d8;
pub const EIAC: u64 = 0x00dc;
pub const IVAR: u64 = 0x00e4;
pub const EITR: u64 = 0x00e8;

/// Causes: a descriptor was sent, a packet was received, and both by messages.
pub const CAUSE_TXDW: u32 = 1 << 0;
pub const CAUSE_RXT0: u32 = 1 << 7;
pub const CAUSE_RXQ0: u32 = 1 << 20;
pub const CAUSE_TXQ0: u32 = 1 << 22;

/// Vector 0 for the first queue each way, and for none of the other causes.
pub const IVAR_QUEUES: u32 = 1 << 3 | 1 << 11;

/// Receive control (section 10.2.5.1): it receives; for any address, for any group, for all; without the CRC. Buffers have 2048 bytes, and what is
/// longer than 1522 with its CRC is dropped.
pub const RCTL: u64 = 0x0100;
pub const RCTL_EN: u32 = 1 << 1;
pub const RCTL_UPE: u32 = 1 << 3;
pub const RCTL_MPE: u32 = 1 << 4;
pub const RCTL_BAM: u32 = 1 << 15;
pub const RCTL_SECRC: u32 = 1 << 26;

/// Transmit control (section 10.2.6.1): it sends; short packets get zeros behind them; the collision's threshold and distance, which a full duplex
/// ignores; several requests at once.
pub const TCTL: u64 = 0x0400;
pub const TCTL_EN: u32 = 1 << 1;
pub const TCTL_PSP: u32 = 1 << 3;
pub const TCTL_COLLISIONS: u32 = 0x0f << 4 | 0x3f << 12;
pub const TCTL_MULR: u32 = 1 << 28;

/// The gap between packets (section 10.2.6.2): the values of IEEE 802.3 on copper.
pub const TIPG: u64 = 0x0410;
pub const TIPG_COPPER: u32 = 8 | 8 << 10 | 6 << 20;

/// What a ring has: where it is, its bytes, the next descriptor of the card, the first one that is the driver's.
pub const BASE_LOW: u64 = 0x00;
pub const BASE_HIGH: u64 = 0x04;
pub const BYTES: u64 = 0x08;
pub const HEAD: u64 = 0x10;
pub const TAIL: u64 = 0x18;
/// How long an interrupt may be late, and when descriptors are fetched and written back.
pub const DELAY: u64 = 0x20;
pub const CONTROL: u64 = 0x28;
pub const DELAY_ALL: u64 = 0x2c;

/// The rings that packets are received by and sent by (sections 10.2.5.4 and 10.2.6.4).
pub const RECEIVE: u64 = 0x2800;
pub const SEND: u64 = 0x3800;

/// Thresholds count descriptors, and each one is written back at once; a bit that is to be set (sections 10.2.5.10 and 10.2.6.9).
pub const RXDCTL_EACH: u32 = 1 << 24 | 1 << 16;
pub const TXDCTL_EACH: u32 = 1 << 24 | 1 << 22;

/// Checksums of what is received, and how filters and descriptors are (sections 10.2.5.15 and 10.2.5.16). With zeros there are none, and descriptors
/// are legacy ones.
pub const RXCSUM: u64 = 0x5000;
pub const RFCTL: u64 = 0x5008;

/// The card's first address (section 10.2.5.20), and whether it is valid.
pub const RAL: u64 = 0x5400;
pub const RAH: u64 = 0x5404;
pub const RAH_AV: u32 = 1 << 31;

/// PCI Express control. The specification update wants a bit set in each: otherwise completions may be lost, and nothing is sent any more.
pub const GCR: u64 = 0x5b00;
pub const GCR_COMPLETIONS: u32 = 1 << 22;
pub const GCR2: u64 = 0x5b64;
pub const GCR2_COMPLETIONS: u32 = 1 << 0;

/// A legacy descriptor's command (section 7.2.10.1): the packet ends here, and gets a CRC; say when it is sent.
pub const COMMAND_EOP: u64 = 1 << 24;
pub const COMMAND_IFCS: u64 = 1 << 25;
pub const COMMAND_RS: u64 = 1 << 27;

/// Its status (sections 7.1.4.2 and 7.2.10.1.4): the card is done with it; the packet ends here.
pub const DONE: u16 = 1 << 0;
pub const END: u16 = 1 << 1;
/// Errors beside it (section 7.1.4.3): of the CRC, a symbol, the sequence, the carrier's extension, the data.
pub const ERRORS: u16 = 0x97 << 8;
