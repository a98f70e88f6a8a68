//! Correctly rounded results, computed with MPFR 4.2 at 400 bits (angles reduced by pi to 66 bits, exactly).

use trapline_emu::x87::{F80, Operation, X87};

/// Sign with exponent, and mantissa.
type Number = (u16, u64);

/// ST(0), ST(1), RC, and the result: of FPTAN, that under the 1.
#[rustfmt::skip]
const RESULTS: [(Operation, Number, Number, u16, Number); 68] = [
    (Operation::Fsin, (0x3ffc, 0xa26e6d35797d76de), (0x3fff, 0x8000000000000000), 0, (0x3ffc, 0xa1c043e18d996523)),
    (Operation::Fsin, (0xbffe, 0xc3ba8ea6a8501e2c), (0x3fff, 0x8000000000000000), 1, (0xbffe, 0xb1358db12b4b180a)),
    (Operation::Fsin, (0x3fff, 0xacc5c46daa99e079), (0x3fff, 0x8000000000000000), 2, (0x3ffe, 0xf9c5ec910fb4ecd2)),
    (Operation::Fsin, (0xc000, 0xb0d99cff248174e5), (0x3fff, 0x8000000000000000), 3, (0xbffd, 0xbd1b94a88265873e)),
    (Operation::Fsin, (0x4013, 0xff91513d02c7bff2), (0x3fff, 0x8000000000000000), 0, (0x3ffe, 0x8fd64ad43150493a)),
    (Operation::Fsin, (0x403d, 0xbdc3d4f15fefe911), (0x3fff, 0x8000000000000000), 1, (0x3ffc, 0xcb53359af20c50c9)),
    (Operation::Fsin, (0x403d, 0xffffffffffffffff), (0x3fff, 0x8000000000000000), 2, (0x3ffe, 0xe0ab9300da6d2685)),
    (Operation::Fsin, (0x4000, 0xc90fdaa22168c235), (0x3fff, 0x8000000000000000), 3, (0xbfbe, 0xffffffffffffffff)),
    (Operation::Fsin, (0x3fff, 0xc90fdaa22168c235), (0x3fff, 0x8000000000000000), 0, (0x3fff, 0x8000000000000000)),
    (Operation::Fsin, (0xbfd7, 0xd25b37c6462804db), (0x3fff, 0x8000000000000000), 1, (0xbfd7, 0xd25b37c6462804db)),
    (Operation::Fsin, (0x3f37, 0xbae86eb3cf72f858), (0x3fff, 0x8000000000000000), 2, (0x3f37, 0xbae86eb3cf72f858)),
    (Operation::Fsin, (0x0000, 0x0000000000003039), (0x3fff, 0x8000000000000000), 3, (0x0000, 0x0000000000003038)),
    (Operation::Fcos, (0x3ffc, 0xeea2d78eb0caae1c), (0x3fff, 0x8000000000000000), 0, (0x3ffe, 0xf91470977697d99b)),
    (Operation::Fcos, (0xbffe, 0x9d23735899f916b1), (0x3fff, 0x8000000000000000), 1, (0x3ffe, 0xd144900501437749)),
    (Operation::Fcos, (0x3fff, 0x803696638ee58b06), (0x3fff, 0x8000000000000000), 2, (0x3ffe, 0x89f555d68f27af7c)),
    (Operation::Fcos, (0xc000, 0xcfe6dcf0a94c56b9), (0x3fff, 0x8000000000000000), 3, (0xbffe, 0xfe8a15a532e32965)),
    (Operation::Fcos, (0x4013, 0xfd306deb25329041), (0x3fff, 0x8000000000000000), 0, (0xbffe, 0xa830b6884094858d)),
    (Operation::Fcos, (0x403d, 0xaf0f54bc70a76e49), (0x3fff, 0x8000000000000000), 1, (0x3ffe, 0xe87fb52718329d8f)),
    (Operation::Fcos, (0x403d, 0xffffffffffffffff), (0x3fff, 0x8000000000000000), 2, (0x3ffd, 0xf56ec1e0a37c4177)),
    (Operation::Fcos, (0x4000, 0xc90fdaa22168c235), (0x3fff, 0x8000000000000000), 3, (0xbffe, 0xffffffffffffffff)),
    (Operation::Fcos, (0x3fff, 0xc90fdaa22168c235), (0x3fff, 0x8000000000000000), 0, (0xbfbe, 0x8000000000000000)),
    (Operation::Fcos, (0xbfd7, 0xab7aa3d5298a59f8), (0x3fff, 0x8000000000000000), 1, (0x3ffe, 0xffffffffffffffff)),
    (Operation::Fptan, (0x3ffc, 0xc9c166380f0f1c69), (0x3fff, 0x8000000000000000), 0, (0x3ffc, 0xcc6847501f463cc2)),
    (Operation::Fptan, (0xbffe, 0x998d97d9d19e3224), (0x3fff, 0x8000000000000000), 1, (0xbffe, 0xaf11f72d160441c4)),
    (Operation::Fptan, (0x3fff, 0xc1bb04cc13199de0), (0x3fff, 0x8000000000000000), 2, (0x4003, 0x8b85491bb2f98591)),
    (Operation::Fptan, (0xc000, 0xe8dd2e07afdba91d), (0x3fff, 0x8000000000000000), 3, (0xbffe, 0x8ad3bb641463977b)),
    (Operation::Fptan, (0x4013, 0xd7394d7f56459afe), (0x3fff, 0x8000000000000000), 0, (0xc003, 0x94d3146cad0255ad)),
    (Operation::Fptan, (0x403d, 0xe620cd2f6794cd2e), (0x3fff, 0x8000000000000000), 1, (0xbffc, 0xe27298e79f639255)),
    (Operation::Fptan, (0x403d, 0xffffffffffffffff), (0x3fff, 0x8000000000000000), 2, (0x3fff, 0xea57f75b8bfebb71)),
    (Operation::Fptan, (0x4000, 0xc90fdaa22168c235), (0x3fff, 0x8000000000000000), 3, (0x3fbf, 0x8000000000000000)),
    (Operation::Fptan, (0x3fff, 0xc90fdaa22168c235), (0x3fff, 0x8000000000000000), 0, (0xc040, 0x8000000000000000)),
    (Operation::Fptan, (0xbfd7, 0x8b2e4c15d7a7bf5e), (0x3fff, 0x8000000000000000), 1, (0xbfd7, 0x8b2e4c15d7a7bf5f)),
    (Operation::Fptan, (0x3f37, 0xf59ebc3904c3405b), (0x3fff, 0x8000000000000000), 2, (0x3f37, 0xf59ebc3904c3405c)),
    (Operation::Fptan, (0x0000, 0x0000000000003039), (0x3fff, 0x8000000000000000), 3, (0x0000, 0x0000000000003039)),
    (Operation::F2xm1, (0x3ffe, 0xe8ea69590f8f95ef), (0x3fff, 0x8000000000000000), 0, (0x3ffe, 0xe0fa58850dabb508)),
    (Operation::F2xm1, (0xbffe, 0xd4bde612ea3fa51c), (0x3fff, 0x8000000000000000), 1, (0xbffd, 0xe030697363cafe0c)),
    (Operation::F2xm1, (0x3ff8, 0x9c93423d8248f803), (0x3fff, 0x8000000000000000), 2, (0x3ff7, 0xd9c7a509a2593d5f)),
    (Operation::F2xm1, (0xbfde, 0xfea65c59174a554f), (0x3fff, 0x8000000000000000), 3, (0xbfde, 0xb08283c5f1703636)),
    (Operation::F2xm1, (0x3fb9, 0xb63f628afcb4d02b), (0x3fff, 0x8000000000000000), 0, (0x3fb8, 0xfca618d831fb2126)),
    (Operation::F2xm1, (0x0001, 0xb8cc93c8f25bc8cf), (0x3fff, 0x8000000000000000), 1, (0x0001, 0x8017ce95052bd145)),
    (Operation::F2xm1, (0x8000, 0x00007fffffffffff), (0x3fff, 0x8000000000000000), 2, (0x8000, 0x000058b90bfbe8e7)),
    (Operation::Fyl2x, (0x3fff, 0xd49735ca1cce9c77), (0x3fff, 0xfc54428c6c5744bc), 0, (0x3fff, 0xb8b03a1ee93232f3)),
    (Operation::Fyl2x, (0x3ffe, 0xc50e07912293ea28), (0xc002, 0xf0e653d85002aab4), 1, (0x4001, 0xb5e6e1ab0727c6ae)),
    (Operation::Fyl2x, (0x3fff, 0x8000000000000001), (0x4004, 0xc771f4d69f177981), 2, (0x3fc6, 0x8fde87be554bccbc)),
    (Operation::Fyl2x, (0x3ffe, 0xffffffffffffffff), (0x3ff6, 0xfcf29e7d29dcb79c), 3, (0xbfb7, 0xb676957bfd9583da)),
    (Operation::Fyl2x, (0x6edf, 0xf15a8570b263bea4), (0xc045, 0xc70f2aa00d257da2), 0, (0xc053, 0x91ce7447b289cd19)),
    (Operation::Fyl2x, (0x0000, 0x000000000000004d), (0x3fff, 0xc0ed7ddd2bd4afc1), 1, (0xc00d, 0xc1927c13876f69a9)),
    (Operation::Fyl2x, (0x4002, 0x8ab37f10d0d18fb0), (0x0003, 0xcdc08fa3668864bf), 2, (0x0005, 0xa045c40878ccc6a4)),
    (Operation::Fyl2x, (0x7ffe, 0xffffffffffffffff), (0x3ffc, 0xd585e77d6b391ca9), 3, (0x400a, 0xd585e77d6b391ca8)),
    (Operation::Fyl2xp1, (0x3ffd, 0xbc1b876a98918dd8), (0x3fff, 0xcdfd6ca77a0d7bda), 0, (0x3ffe, 0xb9fb2fd54bae4332)),
    (Operation::Fyl2xp1, (0xbffc, 0xc54460336273ed06), (0xc002, 0xd2035f8607ce7ade), 1, (0x4001, 0x81abecf884ae58b8)),
    (Operation::Fyl2xp1, (0x3ffa, 0x8a94baaeb9f09825), (0x4004, 0x988f140ef7ab62a8), 2, (0x3fff, 0xea58f9fe2c796753)),
    (Operation::Fyl2xp1, (0xbff9, 0xe4c66ceff9ef0b3c), (0x3ff6, 0xa17aebafa9e16e27), 3, (0xbff1, 0xd327515496074cd4)),
    (Operation::Fyl2xp1, (0x3fbd, 0xf87590d55b397037), (0xc045, 0xeedd68585cf5fe24), 0, (0xc005, 0xa73aaa8ef6ba003f)),
    (Operation::Fyl2xp1, (0xac77, 0xb15b267fb0ab577a), (0x3fff, 0xa7aae39eac7c603b), 1, (0xac78, 0xa79535cedb5ef909)),
    (Operation::Fyl2xp1, (0x3ffc, 0xa04de9821d241ed6), (0x0001, 0xaae8e7483c272728), 2, (0x0000, 0x23dc6a8aaa4616c3)),
    (Operation::Fpatan, (0x3fff, 0xaf85a53f5d02b200), (0x3fff, 0xc95f97b982e7ddc9), 0, (0x3ffe, 0xda97f4a0db4916aa)),
    (Operation::Fpatan, (0xbffe, 0xe1ee34fecf632d49), (0xbffe, 0x96f6db538000cb60), 1, (0xc000, 0xa35cc370c8c8935b)),
    (Operation::Fpatan, (0x4002, 0xb0c1d4f5073465b8), (0x3ffc, 0xedf67275d293ca94), 2, (0x3ff9, 0xac4c09d7b288c321)),
    (Operation::Fpatan, (0x4008, 0x842fff7c6e1e98e2), (0xbfff, 0x834b7ab084dd01fa), 3, (0xbff5, 0xfe455bedfdeadb7b)),
    (Operation::Fpatan, (0xbfff, 0xd67bd78a38dfffb7), (0x4008, 0x8590dddd6d5fcd18), 0, (0x3fff, 0xc976a06c4e7c9569)),
    (Operation::Fpatan, (0x3fff, 0x9a29f38e63641911), (0x4059, 0xcdbba02ac59c74ab), 1, (0x3fff, 0xc90fdaa22168c234)),
    (Operation::Fpatan, (0x3fff, 0x8000000000000000), (0x3fff, 0x8000000000000000), 2, (0x3ffe, 0xc90fdaa22168c235)),
    (Operation::Fpatan, (0x3fff, 0x8000000000000000), (0x3fc3, 0xe06bfe621a44db6e), 3, (0x3fc3, 0xe06bfe621a44db6d)),
    (Operation::Fpatan, (0xbfff, 0x9c3df45c8ccaec71), (0xbfb9, 0x89fb47f82d94a778), 0, (0xc000, 0xc90fdaa22168c235)),
    (Operation::Fpatan, (0x0000, 0x0000000000000005), (0x0000, 0x0000000000000009), 1, (0x3fff, 0x8827401005cffdc5)),
    (Operation::Fpatan, (0x7ffe, 0xffffffffffffffff), (0x3ffc, 0xa30b739eb22635cb), 2, (0x0000, 0x05185b9cf59131af)),
    (Operation::Fpatan, (0x3fff, 0xb77c5a1a096ebec4), (0x3c17, 0x8000000000000000), 3, (0x3c16, 0xb296090d937a2f2d)),
];

#[test]
fn results_are_correctly_rounded() {
    for (operation, a, b, rounding, result) in RESULTS {
        let number = |(head, mantissa): Number| F80 { head, mantissa };
        let mut registers = [number(b); 8];
        registers[3] = number(a);
        let empty = std::array::from_fn(|n| n == 2);
        let mut x87 = X87 { control: 0x37f | rounding << 10, status: 0, top: 3, empty, registers };
        x87.execute(operation);
        let place = if operation == Operation::Fyl2x
            || operation == Operation::Fyl2xp1
            || operation == Operation::Fpatan
        {
            4
        } else {
            3
        };
        assert_eq!(
            x87.registers[place],
            number(result),
            "{operation:x?} of {a:x?} and {b:x?}, RC {rounding}"
        );
    }
}
