// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Numbers and places of fields against Linux's own headers (`include/uapi/linux/virtio_*.h`, in the crate `virtio-bindings`).

use std::mem::{offset_of, size_of};

use turnstile_virtio::config::{
    self, Balloon, Block, BlockRange, BlockRequest, Configuration, Console, ConsoleControl, Network,
    NetworkHeader,
};
use turnstile_virtio::features::Features;
use turnstile_virtio::registers::Status;
use turnstile_virtio::ring::{DESCRIPTOR, Flags};
use virtio_bindings::{
    virtio_blk as blk, virtio_config as cfg, virtio_ids as ids, virtio_net as net, virtio_ring as ring,
};

#[test]
fn bits_have_linux_numbers() {
    let features = [
        (Features::INDIRECT_DESC, ring::VIRTIO_RING_F_INDIRECT_DESC),
        (Features::EVENT_IDX, ring::VIRTIO_RING_F_EVENT_IDX),
        (Features::VERSION_1, cfg::VIRTIO_F_VERSION_1),
        (Features::ACCESS_PLATFORM, cfg::VIRTIO_F_ACCESS_PLATFORM),
        (Features::RING_PACKED, cfg::VIRTIO_F_RING_PACKED),
        (Features::IN_ORDER, cfg::VIRTIO_F_IN_ORDER),
        (Features::ORDER_PLATFORM, cfg::VIRTIO_F_ORDER_PLATFORM),
        (Features::NOTIFICATION_DATA, cfg::VIRTIO_F_NOTIFICATION_DATA),
        (Features::RING_RESET, cfg::VIRTIO_F_RING_RESET),
        (Block::SIZE_MAX, blk::VIRTIO_BLK_F_SIZE_MAX),
        (Block::SEG_MAX, blk::VIRTIO_BLK_F_SEG_MAX),
        (Block::RO, blk::VIRTIO_BLK_F_RO),
        (Block::BLK_SIZE, blk::VIRTIO_BLK_F_BLK_SIZE),
        (Block::FLUSH, blk::VIRTIO_BLK_F_FLUSH),
        (Block::TOPOLOGY, blk::VIRTIO_BLK_F_TOPOLOGY),
        (Block::CONFIG_WCE, blk::VIRTIO_BLK_F_CONFIG_WCE),
        (Block::MQ, blk::VIRTIO_BLK_F_MQ),
        (Block::DISCARD, blk::VIRTIO_BLK_F_DISCARD),
        (Block::WRITE_ZEROES, blk::VIRTIO_BLK_F_WRITE_ZEROES),
        (Network::CSUM, net::VIRTIO_NET_F_CSUM),
        (Network::GUEST_CSUM, net::VIRTIO_NET_F_GUEST_CSUM),
        (Network::MTU, net::VIRTIO_NET_F_MTU),
        (Network::MAC, net::VIRTIO_NET_F_MAC),
        (Network::GUEST_TSO4, net::VIRTIO_NET_F_GUEST_TSO4),
        (Network::GUEST_TSO6, net::VIRTIO_NET_F_GUEST_TSO6),
        (Network::GUEST_ECN, net::VIRTIO_NET_F_GUEST_ECN),
        (Network::GUEST_UFO, net::VIRTIO_NET_F_GUEST_UFO),
        (Network::HOST_TSO4, net::VIRTIO_NET_F_HOST_TSO4),
        (Network::HOST_TSO6, net::VIRTIO_NET_F_HOST_TSO6),
        (Network::HOST_ECN, net::VIRTIO_NET_F_HOST_ECN),
        (Network::HOST_UFO, net::VIRTIO_NET_F_HOST_UFO),
        (Network::MRG_RXBUF, net::VIRTIO_NET_F_MRG_RXBUF),
        (Network::STATUS, net::VIRTIO_NET_F_STATUS),
        (Network::CTRL_VQ, net::VIRTIO_NET_F_CTRL_VQ),
        (Network::CTRL_RX, net::VIRTIO_NET_F_CTRL_RX),
        (Network::CTRL_VLAN, net::VIRTIO_NET_F_CTRL_VLAN),
        (Network::GUEST_ANNOUNCE, net::VIRTIO_NET_F_GUEST_ANNOUNCE),
        (Network::MQ, net::VIRTIO_NET_F_MQ),
        (Network::CTRL_MAC_ADDR, net::VIRTIO_NET_F_CTRL_MAC_ADDR),
    ];
    for (ours, number) in features {
        assert_eq!(ours.bits(), 1 << number, "{number}");
    }
    let status = [
        (Status::ACKNOWLEDGE, cfg::VIRTIO_CONFIG_S_ACKNOWLEDGE),
        (Status::DRIVER, cfg::VIRTIO_CONFIG_S_DRIVER),
        (Status::DRIVER_OK, cfg::VIRTIO_CONFIG_S_DRIVER_OK),
        (Status::FEATURES_OK, cfg::VIRTIO_CONFIG_S_FEATURES_OK),
        (Status::NEEDS_RESET, cfg::VIRTIO_CONFIG_S_NEEDS_RESET),
        (Status::FAILED, cfg::VIRTIO_CONFIG_S_FAILED),
    ];
    assert!(status.iter().all(|&(ours, theirs)| u32::from(ours.bits()) == theirs));
    let kinds =
        [config::NETWORK, config::BLOCK, config::CONSOLE, config::ENTROPY, config::BALLOON].map(u32::from);
    let theirs = [
        ids::VIRTIO_ID_NET,
        ids::VIRTIO_ID_BLOCK,
        ids::VIRTIO_ID_CONSOLE,
        ids::VIRTIO_ID_RNG,
        ids::VIRTIO_ID_BALLOON,
    ];
    assert_eq!(kinds, theirs);
    let requests = [
        BlockRequest::IN,
        BlockRequest::OUT,
        BlockRequest::FLUSH,
        BlockRequest::GET_ID,
        BlockRequest::DISCARD,
    ];
    let theirs = [
        blk::VIRTIO_BLK_T_IN,
        blk::VIRTIO_BLK_T_OUT,
        blk::VIRTIO_BLK_T_FLUSH,
        blk::VIRTIO_BLK_T_GET_ID,
        blk::VIRTIO_BLK_T_DISCARD,
    ];
    assert_eq!((requests, BlockRequest::WRITE_ZEROES), (theirs, blk::VIRTIO_BLK_T_WRITE_ZEROES));
    let statuses = [BlockRequest::OK, BlockRequest::IOERR, BlockRequest::UNSUPP].map(u32::from);
    assert_eq!(statuses, [blk::VIRTIO_BLK_S_OK, blk::VIRTIO_BLK_S_IOERR, blk::VIRTIO_BLK_S_UNSUPP]);
    let flags = [Flags::NEXT, Flags::WRITE, Flags::INDIRECT].map(|flag| u32::from(flag.bits()));
    assert_eq!(flags, [ring::VRING_DESC_F_NEXT, ring::VRING_DESC_F_WRITE, ring::VRING_DESC_F_INDIRECT]);
    assert_eq!(DESCRIPTOR as usize, size_of::<ring::vring_desc>());
}

#[test]
fn fields_are_where_linux_has_them() {
    let block = Block {
        capacity: 0x1122_3344_5566_7788,
        size_max: 2,
        seg_max: 3,
        block_size: 4,
        physical_block_exp: 5,
        alignment_offset: 6,
        min_io_size: 7,
        opt_io_size: 8,
        writeback: true,
        queues: 9,
        max_discard_sectors: 10,
        max_discard_seg: 11,
        discard_sector_alignment: 12,
        max_write_zeroes_sectors: 13,
        max_write_zeroes_seg: 14,
        write_zeroes_may_unmap: true,
    };
    type Theirs = blk::virtio_blk_config;
    let fields = [
        (offset_of!(Theirs, capacity), 8, 0x1122_3344_5566_7788),
        (offset_of!(Theirs, size_max), 4, 2),
        (offset_of!(Theirs, seg_max), 4, 3),
        (offset_of!(Theirs, geometry), 4, 0),
        (offset_of!(Theirs, blk_size), 4, 4),
        (offset_of!(Theirs, physical_block_exp), 1, 5),
        (offset_of!(Theirs, alignment_offset), 1, 6),
        (offset_of!(Theirs, min_io_size), 2, 7),
        (offset_of!(Theirs, opt_io_size), 4, 8),
        (offset_of!(Theirs, wce), 1, 1),
        (offset_of!(Theirs, num_queues), 2, 9),
        (offset_of!(Theirs, max_discard_sectors), 4, 10),
        (offset_of!(Theirs, max_discard_seg), 4, 11),
        (offset_of!(Theirs, discard_sector_alignment), 4, 12),
        (offset_of!(Theirs, max_write_zeroes_sectors), 4, 13),
        (offset_of!(Theirs, max_write_zeroes_seg), 4, 14),
        (offset_of!(Theirs, write_zeroes_may_unmap), 1, 1),
    ];
    for (at, size, value) in fields {
        assert_eq!(block.read(at as u64, size), value, "{at:#x}");
    }
    assert_eq!(Block::LENGTH, offset_of!(Theirs, max_secure_erase_sectors));
    assert_eq!(Block::from_bytes(block.image().first_chunk().unwrap()), block);

    let network = Network { mac: [1, 2, 3, 4, 5, 6], link_up: true, announce: true, max_pairs: 7, mtu: 1500 };
    type Net = net::virtio_net_config;
    assert_eq!(network.read(offset_of!(Net, mac) as u64, 6), 0x0605_0403_0201);
    let status = u64::from(net::VIRTIO_NET_S_LINK_UP | net::VIRTIO_NET_S_ANNOUNCE);
    assert_eq!(network.read(offset_of!(Net, status) as u64, 2), status);
    assert_eq!(network.read(offset_of!(Net, max_virtqueue_pairs) as u64, 2), 7);
    assert_eq!(network.read(offset_of!(Net, mtu) as u64, 2), 1500);
    assert_eq!(Network::LENGTH, offset_of!(Net, speed));
    // Of these there are no bindings: sections 5.3.4 and 5.5.4.
    let console = Console { columns: 80, rows: 25, max_ports: 2, emergency: None };
    assert_eq!((console.read(0, 8), console.read(8, 4)), (0x2_0019_0050, 0));
    let balloon = Balloon { wanted: 1, actual: 2, free_page_hint: 3, poison: 4 };
    assert_eq!((balloon.read(0, 8), balloon.read(8, 8)), (0x2_0000_0001, 0x4_0000_0003));
    assert_eq!((balloon.read(16, 8), balloon.read(u64::MAX, 8), balloon.read(12, 255)), (0, 0, 4));
}

#[test]
fn headers_are_what_linux_sends() {
    let range = BlockRange { sector: 5, sectors: 6, flags: 1 };
    let request = BlockRequest { kind: BlockRequest::OUT, sector: 0x1234_5678_9abc };
    let (bytes, range_bytes) = (request.to_bytes(), range.to_bytes());
    assert_eq!(bytes[offset_of!(blk::virtio_blk_outhdr, type_)], 1);
    assert_eq!(bytes[offset_of!(blk::virtio_blk_outhdr, sector)..][..4], 0x5678_9abcu32.to_le_bytes());
    assert_eq!(range_bytes[offset_of!(blk::virtio_blk_discard_write_zeroes, num_sectors)], 6);
    assert_eq!(range_bytes[offset_of!(blk::virtio_blk_discard_write_zeroes, flags)], 1);
    assert_eq!((BlockRequest::from_bytes(&bytes), BlockRange::from_bytes(&range_bytes)), (request, range));
    let sizes = [BlockRequest::LENGTH, BlockRange::LENGTH, NetworkHeader::LENGTH];
    let theirs = [
        size_of::<blk::virtio_blk_outhdr>(),
        size_of::<blk::virtio_blk_discard_write_zeroes>(),
        size_of::<net::virtio_net_hdr_v1>(),
    ];
    assert_eq!(sizes, theirs);
    let header = NetworkHeader {
        flags: 1,
        gso_type: 4,
        header_length: 54,
        gso_size: 1448,
        checksum_start: 34,
        checksum_offset: 16,
        buffers: 3,
    };
    let bytes = header.to_bytes();
    type Header = net::virtio_net_hdr_v1;
    let checksum = offset_of!(Header, __bindgen_anon_1);
    assert_eq!(
        (bytes[0], bytes[offset_of!(Header, gso_type)], bytes[offset_of!(Header, hdr_len)]),
        (1, 4, 54)
    );
    assert_eq!((bytes[checksum], bytes[checksum + 2], bytes[offset_of!(Header, num_buffers)]), (34, 16, 3));
    assert_eq!(bytes[offset_of!(Header, gso_size)..][..2], 1448u16.to_le_bytes());
    assert_eq!(NetworkHeader::from_bytes(&bytes), header);
    let control = ConsoleControl { port: 1, event: ConsoleControl::PORT_OPEN, value: 1 };
    assert_eq!(control.to_bytes(), [1, 0, 0, 0, 6, 0, 1, 0]);
    assert_eq!(ConsoleControl::from_bytes(&control.to_bytes()), control);
}

#[test]
fn drivers_write_what_is_theirs() {
    let mut block = Block { capacity: 8, ..Block::default() };
    assert!(block.write(0x20, 1, 1) && !block.write(0x20, 1, 1) && block.write(0x20, 1, 0));
    assert!(!block.write(0, 8, 0) && !block.write(0x20, 4, 1) && !block.write(u64::MAX, 1, 1));
    assert_eq!(block, Block { capacity: 8, ..Block::default() });
    let mut balloon = Balloon { wanted: 7, ..Balloon::default() };
    assert!(
        balloon.write(4, 4, 5)
            && balloon.write(12, 4, 6)
            && !balloon.write(0, 4, 1)
            && !balloon.write(4, 8, 1)
    );
    assert_eq!(balloon, Balloon { wanted: 7, actual: 5, free_page_hint: 0, poison: 6 });
    let mut console = Console::default();
    assert!(console.write(8, 4, u64::from(b'x')) && !console.write(0, 2, 1));
    assert_eq!(console.emergency, Some(b'x'));
    assert!(!().write(0, 1, 1) && !Network::default().write(0, 1, 1));
    assert_eq!(().read(0, 8), 0);
}
