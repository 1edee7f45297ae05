terraform import sallyport_socket.shop wandering-shape-7752 # its id, its name or its DNS name
