"""What diffusion and flow policies share: a chain of denoising steps from noise to an action chunk."""
