"""Operating system services: files, maps, memory, processors, descriptors."""
