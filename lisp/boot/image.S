/* image.S -- files as bytes, and how many: the compiled core library (KRI_CORE names the file), the headers for generated C (KRI_HEADER);
 * and where modules are sought if nothing else tells (KRI_LIBRARY). */
        .section .rodata
        .hidden kri_default_library
        .global kri_default_library
kri_default_library:
        .asciz KRI_LIBRARY

        .macro bytes name, file
        .hidden \name
        .hidden \name\()_bytes
        .global \name
        .global \name\()_bytes
        .balign 8
\name:
        .incbin "\file"
1:
        .balign 8
\name\()_bytes:
        .quad 1b - \name
        .endm

        bytes kri_core_image, KRI_CORE
        bytes kri_native_header, KRI_HEADER
        .section .note.GNU-stack,"",@progbits
