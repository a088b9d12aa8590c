/* image.S -- the compiled core library, as bytes (KRI_CORE names the file). */
        .section .rodata
        .hidden kri_core_image
        .hidden kri_core_image_end
        .global kri_core_image
        .global kri_core_image_end
        .balign 8
kri_core_image:
        .incbin KRI_CORE
kri_core_image_end:
        .byte 0
        .section .note.GNU-stack,"",@progbits
