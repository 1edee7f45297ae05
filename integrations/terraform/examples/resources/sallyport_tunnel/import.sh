terraform import "sallyport_tunnel.web[0]" SOCKET_ID/TUNNEL_ID
